//! Tests of `/debug/pprof/` of a running controller.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[path = "../../../../karpenter-memory/tests/profiles/pprof.rs"]
mod pprof;

/// The status and the body of a response.
fn fetch(port: &Value, path: &str) -> (u16, Vec<u8>) {
    let port = u16::try_from(port.as_u64().expect("a port")).expect("a port");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connects");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("answered");
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head and a body") + 4;
    let status =
        String::from_utf8_lossy(&answer[..head]).split(' ').nth(1).and_then(|text| text.parse().ok());
    (status.expect("a status"), answer.split_off(head))
}

fn start(kubeconfig: &Path, more: &[&str]) -> (Running, Value) {
    let arguments = [
        "controller",
        "--provider",
        "kwok",
        "--metrics-port=0",
        "--health-probe-port=0",
        "--disable-leader-election",
    ];
    let mut running = Running::start(&[&arguments, more].concat(), kubeconfig);
    let started = running.line_with("starting karpenter");
    let said: Value = serde_json::from_str(&started).expect("a line of JSON");
    (running, said["metrics-port"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_are_served_only_if_enabled() {
    let folder = folder("profiles");
    let kubeconfig = folder.join("kubeconfig");
    let mut up = Running::start(&["up", "--port", "0", "--without-karpenter"], &kubeconfig);
    up.line_with("Ctrl-C");

    let (plain, port) = start(&kubeconfig, &[]);
    for path in ["/debug/pprof/", "/debug/pprof/profile?seconds=1", "/debug/pprof/heap"] {
        assert_eq!(fetch(&port, path).0, 404, "{path} is off by default");
    }
    drop(plain);

    let (_profiled, port) = start(&kubeconfig, &["--enable-profiling"]);
    let (status, index) = fetch(&port, "/debug/pprof/");
    assert!(status == 200 && String::from_utf8_lossy(&index).contains("/debug/pprof/heap"));
    let (status, missing) = fetch(&port, "/debug/pprof/goroutine");
    assert!(status == 404 && String::from_utf8_lossy(&missing).contains("/debug/pprof/profile"));

    let (status, heap) = fetch(&port, "/debug/pprof/heap");
    assert_eq!(status, 200);
    let heap = pprof::Profile::read(&heap);
    let types = ["alloc_objects count", "alloc_space bytes", "inuse_objects count", "inuse_space bytes"];
    assert_eq!(
        (heap.value_types().as_slice(), heap.default_type()),
        (types.map(str::to_owned).as_slice(), "inuse_space")
    );
    assert!(!heap.sample.is_empty(), "megabytes are in use");
    assert!(heap.functions().iter().any(|name| name.contains("karpenter")), "{:?}", heap.functions());

    // Causes CPU load during the profile.
    let is_over = AtomicBool::new(false);
    let cpu = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                fetch(&port, "/metrics");
            }
        });
        let cpu = fetch(&port, "/debug/pprof/profile?seconds=2");
        is_over.store(true, Ordering::Relaxed);
        cpu
    });
    assert_eq!(cpu.0, 200);
    let cpu = pprof::Profile::read(&cpu.1);
    assert_eq!(cpu.value_types(), ["samples count", "cpu nanoseconds"]);
    assert!(cpu.sum("karpenter", 1) > 0, "{:?}", cpu.functions());
    drop(up);
    std::fs::remove_dir_all(&folder).expect("removed");
}
