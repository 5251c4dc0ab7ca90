//! Small HTTP servers for metrics, health and debug pages. They are read-only.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, Uri, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Maximum number of concurrent connections; further clients wait.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take to send a complete request header. After that the connection is closed.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// The response of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub status: u16,
    pub content_type: &'static str,
    pub body: Vec<u8>,
}

impl Page {
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: body.into().into_bytes() }
    }

    pub fn json(body: String) -> Self {
        Self { status: 200, content_type: "application/json", body: body.into_bytes() }
    }

    pub fn binary(body: Vec<u8>) -> Self {
        Self { status: 200, content_type: "application/octet-stream", body }
    }

    pub fn not_found() -> Self {
        Self::text(404, "404 page not found\n")
    }
}

/// The function that returns the page for a path and query string.
pub type Pages = Arc<dyn Fn(&str, &str) -> Page + Send + Sync>;

/// A listening port. It is closed when this value is dropped.
pub struct Port {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Port {
    /// Listens on all addresses; port 0 selects a free one.
    pub async fn open(port: u16, pages: Pages) -> io::Result<Self> {
        let listener = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
            Ok(listener) => listener,
            // Binding to IPv6 fails if IPv6 is not available or if the port is in use. If the port is in use, the
            // second attempt fails too and returns that error.
            Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?,
        };
        let address = listener.local_addr()?;
        Ok(Self { address, accepting: tokio::spawn(accept(listener, pages)) })
    }

    pub fn number(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, pages: Pages) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = connections.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                // Accepting usually fails because the process has no free file descriptors. It is retried after some
                // connections may have been closed.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let pages = pages.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let (pages, method, uri) = (pages.clone(), request.method().clone(), request.uri().clone());
                async move {
                    // Writing the page of a large cluster takes long, so it runs on a blocking thread and does not
                    // delay the controllers.
                    let written = tokio::task::spawn_blocking(move || respond(&pages, &method, &uri)).await;
                    Ok::<_, Infallible>(written.unwrap_or_else(|_| failed()))
                }
            });
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
            // The error is ignored: it means that the client disconnected early.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
            drop(permit);
        });
    }
}

/// The response with status 500, for a page that could not be written because of a panic.
fn failed() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

fn respond(pages: &Pages, method: &Method, uri: &Uri) -> Response<Full<Bytes>> {
    let page = match *method {
        Method::GET | Method::HEAD => pages(uri.path(), uri.query().unwrap_or_default()),
        _ => Page::text(405, "405 method not allowed\n"),
    };
    let mut response = Response::new(Full::new(Bytes::from(page.body)));
    *response.status_mut() = StatusCode::from_u16(page.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(page.content_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    async fn ask(port: u16, request: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.expect("connects");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        answer
    }

    #[tokio::test]
    async fn pages_are_served_until_port_is_dropped() {
        let pages: Pages = Arc::new(|path, query| match path {
            "/healthz" => Page::text(200, "ok"),
            "/echo" => Page::text(200, query),
            _ => Page::not_found(),
        });
        let port = Port::open(0, pages).await.expect("opens");
        let number = port.number();
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let found = ask(number, &get("/healthz?verbose")).await;
        assert!(found.starts_with("HTTP/1.1 200") && found.ends_with("ok"), "{found}");
        assert!(ask(number, &get("/echo?node=a")).await.ends_with("node=a"));
        assert!(ask(number, &get("/other")).await.starts_with("HTTP/1.1 404"));
        let post = "POST /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        assert!(ask(number, post).await.starts_with("HTTP/1.1 405"));
        drop(port);
        while TcpStream::connect((Ipv4Addr::LOCALHOST, number)).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }
}
