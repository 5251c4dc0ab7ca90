//! An HTTP proxy that connects every tunnel to one address, whatever host was requested, and records the tunnels.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

#[derive(Debug, Clone)]
pub(crate) struct Tunnel {
    /// `host:port`
    pub(crate) target: String,
    pub(crate) authorization: Option<String>,
}

pub(crate) struct Proxy {
    address: SocketAddr,
    tunnels: Arc<Mutex<Vec<Tunnel>>>,
}

impl Proxy {
    pub(crate) async fn start(leads_to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let tunnels = Arc::<Mutex<Vec<Tunnel>>>::default();
        let list = Arc::clone(&tunnels);
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(tunnel(connection, leads_to, Arc::clone(&list)));
            }
        });
        Self { address, tunnels }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The tunnels since the last call.
    pub(crate) fn take(&self) -> Vec<Tunnel> {
        std::mem::take(&mut *self.tunnels.lock().expect("no panic"))
    }
}

async fn tunnel(mut connection: TcpStream, leads_to: SocketAddr, list: Arc<Mutex<Vec<Tunnel>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match connection.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let Some(target) = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()) else { return };
    let authorization = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("proxy-authorization").then(|| value.trim().to_owned())
    });
    list.lock().expect("no panic").push(Tunnel { target: target.to_owned(), authorization });
    let Ok(mut server) = TcpStream::connect(leads_to).await else { return };
    if connection.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.is_ok() {
        let _ = copy_bidirectional(&mut connection, &mut server).await;
    }
}
