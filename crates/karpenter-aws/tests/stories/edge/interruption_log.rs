//! Tests the log line of an interruption, as the binary formats it.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use karpenter_aws::interruption::message::Kind;
use karpenter_controllers::logs::{Lines, LogFormat, PassIds};
use karpenter_runtime::object::ObjectKey;
use regex::Regex;
use serde_json::json;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

use super::world::{QUEUE, World};

#[derive(Clone, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("a log").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Log parsers expect exactly the NodeClaim's key between the message kind and the action.
#[tokio::test(start_paused = true)]
async fn interruption_log_line_has_keys_in_upstream_order() {
    let world = World::start().await;
    world.claim("one", "i-1", json!({})).await;
    let (out, clock) = (Bytes::default(), world.clock);
    let kept = out.clone();
    let lines = tracing_subscriber::fmt::layer()
        .event_format(Lines { format: LogFormat::Json, now: Box::new(move || clock.now()) })
        .with_writer(move || kept.clone());
    let filter = Targets::new().with_target("karpenter", Level::INFO);
    let listening = tracing::subscriber::set_default(tracing_subscriber::registry().with(filter).with(lines));
    let pass = PassIds::new(clock.now()).pass("interruption", &ObjectKey::new("", "0"));
    let handled = pass.run(world.handler.handle(Kind::SpotInterrupted, "i-1", Some(QUEUE))).await;
    assert!(handled.expect("handled"), "the claim is found");
    drop(listening);
    let text = String::from_utf8(out.0.lock().expect("a log").clone()).expect("text");
    let expected = Regex::new(&format!(
        r#""message":"initiating delete from interruption message","commit":"[0-9a-z-]+","controller":"interruption","namespace":"","name":"","reconcileID":"[0-9a-f-]{{36}}","queue":"{QUEUE}","messageKind":"spot_interrupted","NodeClaim":\{{"name":"one"\}},"action":"CordonAndDrain","Node":\{{"name":"one"\}}\}}"#
    ));
    assert!(expected.expect("a pattern").is_match(&text), "{text}");
}
