//! Serves the API on a socket, for kubectl and other processes.
//!
//! With TLS, a client must present the token or the client certificate of [`Credentials`]. Without TLS there is no
//! authentication, so the server listens only on loopback addresses. There is no authorization: every client that is
//! authenticated may make every request.

mod credentials;
mod kubeconfig;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

pub use credentials::Credentials;

use crate::ApiServer;
use crate::encode::{Reply, RespBody};
use crate::status::Failure;

/// How long the server waits at shutdown for open connections to finish their requests.
const DRAIN_PERIOD: Duration = Duration::from_secs(5);

/// How clients authenticate.
#[derive(Debug, Clone)]
pub enum Security {
    /// No encryption and no authentication; allowed only for loopback addresses.
    Plain,
    Tls(Arc<Credentials>),
}

/// A server that listens on a socket. Dropping it closes the listener and all connections; [`Serving::shutdown`] lets
/// requests finish before.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    security: Security,
    server: ApiServer,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ApiServer {
    /// Listens on `address`; with port 0, on any free port.
    pub async fn serve(&self, address: SocketAddr, security: Security) -> io::Result<Serving> {
        if matches!(security, Security::Plain) && !address.ip().is_loopback() {
            let why = format!("{address} is not a loopback address, so TLS is required");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let tls = match &security {
            Security::Plain => None,
            Security::Tls(credentials) => {
                Some(TlsAcceptor::from(credentials.server_config().map_err(io::Error::other)?))
            }
        };
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let stop = watch::Sender::new(false);
        let handler = ConnectionHandler {
            server: self.clone(),
            security: security.clone(),
            tls,
            stop: stop.subscribe(),
        };
        let task = tokio::spawn(accept(listener, handler));
        Ok(Serving { address, security, server: self.clone(), stop, task })
    }
}

impl Serving {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `https://127.0.0.1:6443`
    pub fn url(&self) -> String {
        let scheme = if matches!(self.security, Security::Plain) { "http" } else { "https" };
        format!("{scheme}://{}", self.address)
    }

    /// A kubeconfig that contains the address of this server and credentials for it.
    pub fn kubeconfig(&self) -> String {
        let credentials = match &self.security {
            Security::Plain => None,
            Security::Tls(credentials) => Some(credentials.as_ref()),
        };
        kubeconfig::render(&self.url(), credentials)
    }

    /// Stops listening, ends watches and waits for requests to finish. The [`ApiServer`] serves no watches afterwards.
    pub async fn shutdown(mut self) {
        self.server.stop();
        self.stop.send_replace(true);
        // The task ends after its connections are closed.
        let _ = (&mut self.task).await;
    }
}

/// The data that the handler of a connection needs.
#[derive(Clone)]
struct ConnectionHandler {
    server: ApiServer,
    security: Security,
    tls: Option<TlsAcceptor>,
    stop: watch::Receiver<bool>,
}

/// Waits until the stop signal is set or its sender is dropped.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stopped| *stopped).await);
}

async fn accept(listener: TcpListener, handler: ConnectionHandler) {
    let mut connections = JoinSet::new();
    let mut stop = handler.stop.clone();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(handler.clone().handle_stream(stream))),
                // The most likely cause is that the process has no file descriptors left. Accepting is retried after a
                // delay, when other connections may have been closed.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
            () = stopped(&mut stop) => break,
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    // After the timeout, the set is dropped, which aborts the connections that are left.
    let _ = tokio::time::timeout(DRAIN_PERIOD, drained).await;
}

impl ConnectionHandler {
    async fn handle_stream(self, stream: TcpStream) {
        // Nagle's algorithm is disabled, so that small responses are sent at once.
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => self.clone().serve_http(stream, false).await,
            Some(tls) => {
                // If the handshake fails, the client gets the error, and the server ignores it.
                if let Ok(stream) = tls.accept(stream).await {
                    let has_certificate = stream.get_ref().1.peer_certificates().is_some();
                    self.clone().serve_http(stream, has_certificate).await;
                }
            }
        }
    }

    async fn serve_http<S>(self, stream: S, has_certificate: bool)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut stop = self.stop.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let handler = self.clone();
            async move { Ok::<_, Infallible>(handler.respond(request, has_certificate).await) }
        });
        let builder = auto::Builder::new(TokioExecutor::new());
        let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        // If the connection fails, the client gets the error, and the server ignores it.
        tokio::select! {
            _ = connection.as_mut() => return,
            () = stopped(&mut stop) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }

    async fn respond(&self, request: Request<Incoming>, has_certificate: bool) -> Response<RespBody> {
        let known = match &self.security {
            Security::Plain => true,
            Security::Tls(credentials) => has_certificate || credentials.admits(request.headers()),
        };
        let public = matches!(request.uri().path(), "/healthz" | "/livez" | "/readyz" | "/version");
        if known || public {
            return self.server.handle(request).await;
        }
        Reply::from(&Failure::new(401, "Unauthorized", "Unauthorized")).into_response()
    }
}
