//! Selects the HTTP proxy of a request by HTTPS_PROXY, HTTP_PROXY and NO_PROXY, with the rules of Go's `httpproxy`.
//!
//! Upstream is a Go program, so the same variables must select the same proxy here. This module only selects the proxy;
//! clients connect to it. Requests to `localhost` and to loopback addresses never go through a proxy.

use std::fmt;
use std::net::IpAddr;

use http::Uri;
use ipnet::IpNet;

/// The proxies of a process, and the hosts that bypass them. The default has no proxies.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProxyRules {
    http: Option<Uri>,
    https: Option<Uri>,
    bypass: Vec<Bypass>,
    ignored: Vec<&'static str>,
}

/// An entry of NO_PROXY. A port is compared only if the entry has one.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Bypass {
    Everything,
    Network(IpNet),
    Address {
        ip: IpAddr,
        port: String,
    },
    /// Matches hosts in a domain. `suffix` begins with a dot. The domain itself matches too, unless the entry began
    /// with a dot.
    Domain {
        suffix: String,
        port: String,
        is_domain_included: bool,
    },
}

impl ProxyRules {
    pub fn from_environment() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// Of the two spellings of a variable, the one in lower case takes precedence; an empty value counts as not set.
    pub fn from_variables(read: impl Fn(&str) -> Option<String>) -> Self {
        let first = |names: [&str; 2]| {
            let mut values = names.iter().filter_map(|name| read(name));
            values.find(|value| !value.is_empty()).unwrap_or_default()
        };
        let mut ignored = Vec::new();
        let mut proxy = |lower: &str, upper: &'static str| {
            let value = first([lower, upper]);
            let parsed = parse_proxy(&value);
            if parsed.is_none() && !value.is_empty() {
                ignored.push(upper);
            }
            parsed
        };
        let (http, https) = (proxy("http_proxy", "HTTP_PROXY"), proxy("https_proxy", "HTTPS_PROXY"));
        Self { http, https, bypass: parse_bypass(&first(["no_proxy", "NO_PROXY"])), ignored }
    }

    /// Names of the variables whose values are not addresses of a proxy. Like upstream, this module ignores such
    /// values. The values are not returned, because they may contain passwords.
    pub fn ignored_variables(&self) -> &[&'static str] {
        &self.ignored
    }

    /// All proxies that the variables name, without duplicates.
    pub fn proxies(&self) -> impl Iterator<Item = &Uri> {
        let is_another = |proxy: &&Uri| self.https.as_ref() != Some(*proxy);
        self.https.iter().chain(self.http.as_ref().filter(is_another))
    }

    /// The proxy for a request; `None` if the request is sent directly.
    pub fn proxy_for(&self, target: &Uri) -> Option<&Uri> {
        let (proxy, default_port) = match target.scheme_str() {
            Some("https") => (self.https.as_ref()?, "443"),
            Some("http") => (self.http.as_ref()?, "80"),
            _ => return None,
        };
        let host = target.host()?.trim_start_matches('[').trim_end_matches(']');
        let port = target.port().map_or(default_port.to_owned(), |port| port.as_str().to_owned());
        let ip = host.parse().ok().map(|ip: IpAddr| ip.to_canonical());
        if host == "localhost" || ip.is_some_and(|ip| ip.is_loopback()) {
            return None;
        }
        let host = host.to_ascii_lowercase();
        let is_bypassed = self.bypass.iter().any(|entry| entry.matches(&host, &port, ip));
        (!is_bypassed).then_some(proxy)
    }
}

/// The output does not contain user names and passwords.
impl fmt::Debug for ProxyRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = |proxy: &Option<Uri>| proxy.as_ref().and_then(Uri::host).map(str::to_owned);
        f.debug_struct("ProxyRules")
            .field("http", &host(&self.http))
            .field("https", &host(&self.https))
            .field("bypass", &self.bypass)
            .finish()
    }
}

impl Bypass {
    fn matches(&self, host: &str, port: &str, ip: Option<IpAddr>) -> bool {
        let is_port = |wanted: &str| wanted.is_empty() || wanted == port;
        match self {
            Self::Everything => true,
            Self::Network(network) => ip.is_some_and(|ip| network.contains(&ip)),
            Self::Address { ip: wanted, port } => ip == Some(*wanted) && is_port(port),
            Self::Domain { suffix, port, is_domain_included } => {
                let is_domain = *is_domain_included && Some(host) == suffix.strip_prefix('.');
                ip.is_none() && (host.ends_with(suffix.as_str()) || is_domain) && is_port(port)
            }
        }
    }
}

/// Parses a URL, or `host[:port]` of an HTTP proxy.
fn parse_proxy(value: &str) -> Option<Uri> {
    let whole = |value: &str| {
        let uri: Uri = value.parse().ok()?;
        (uri.scheme().is_some() && uri.host().is_some_and(|host| !host.is_empty())).then_some(uri)
    };
    if value.is_empty() {
        return None;
    }
    whole(value).or_else(|| whole(&format!("http://{value}")))
}

fn parse_bypass(list: &str) -> Vec<Bypass> {
    let mut found = Vec::new();
    for entry in list.split(',').map(|entry| entry.trim().to_ascii_lowercase()) {
        if entry == "*" {
            return vec![Bypass::Everything];
        }
        if let Ok(network) = entry.parse() {
            found.push(Bypass::Network(network));
            continue;
        }
        let (host, port) = split_port(&entry);
        if host.is_empty() {
            continue;
        }
        if let Ok(ip) = host.parse::<IpAddr>() {
            found.push(Bypass::Address { ip: ip.to_canonical(), port: port.to_owned() });
            continue;
        }
        let host = if host.starts_with("*.") { &host[1..] } else { host };
        let is_domain_included = !host.starts_with('.');
        let suffix = if is_domain_included { format!(".{host}") } else { host.to_owned() };
        found.push(Bypass::Domain { suffix, port: port.to_owned(), is_domain_included });
    }
    found
}

/// Splits `host:port` and `[address]:port`. Anything else, including an IPv6 address without brackets, is a host
/// without a port.
fn split_port(entry: &str) -> (&str, &str) {
    if let Some((host, port)) = entry.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
        return (host, port);
    }
    match entry.split_once(':') {
        Some((host, port)) if !port.contains(':') => (host, port),
        _ => (entry, ""),
    }
}

#[cfg(test)]
mod tests;
