//! Deletes CRDs of which no objects exist, because deleting a CRD deletes its objects.

use std::time::Duration;

use karpenter_runtime::clock::Clock;
use kube::Client;
use serde_json::Value;

use super::observe;
use super::plan::definition_stays;
use crate::install::{definition_kind, delete};
use crate::kinds::{DEFINITION, name, title};
use crate::{Error, Progress};

const DELETION_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

pub(super) async fn remove(
    client: &Client,
    clock: Clock,
    definitions: &[Value],
    progress: Progress<'_>,
) -> Result<(), Error> {
    let mut stay = Vec::new();
    let mut gone = Vec::new();
    for definition in definitions {
        let Some((kind, _)) = definition_kind(definition) else { continue };
        let objects_count = observe::all(client, kind).await?.len();
        match definition_stays(definition, objects_count) {
            Some(why) => stay.push(format!("{} is kept: {why}", title(definition))),
            None => {
                delete(client, definition, progress).await?;
                gone.push(name(definition));
            }
        }
    }
    let deadline = clock.now() + DELETION_TIMEOUT;
    for name in gone {
        let read = || Error::api(format!("cannot read {name}"));
        while DEFINITION.all(client).get_opt(name).await.map_err(read())?.is_some() {
            if clock.now() >= deadline {
                return Err(Error::TimedOut(format!("definition {name} is terminating and still exists")));
            }
            clock.sleep(POLL_INTERVAL).await;
        }
    }
    if stay.is_empty() { Ok(()) } else { Err(Error::Refused(stay)) }
}
