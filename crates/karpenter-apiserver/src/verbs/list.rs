//! The verb `list`: consistent snapshots of the current or an earlier revision, with pagination.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use super::Call;
use super::decode::bad;
use crate::encode::{Format, ListBody, Reply, RespBody, partial_metadata};
use crate::options::ListOptions;
use crate::status::{ApiResult, Cause, Failure};
use crate::store::{Entry, Range, Snapshot};

const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You \
                                can start a new list without the continue parameter, or use the continue token in \
                                this response to retrieve the remainder of the results. Continuing with the provided \
                                token results in an inconsistent list - objects that were created, modified, or \
                                deleted between the time the first chunk was returned and now may show up in the list.";
const LIST_EXPIRED: &str = "The resourceVersion for the provided list is too old.";

impl Call<'_> {
    pub(crate) fn list(&self) -> ApiResult<Reply> {
        let options = ListOptions::parse(&self.incoming.query, false)?;
        let selector = self.selector()?;
        let range = self.range(&selector);
        let snapshot = match self.snapshot(range, &options)? {
            Ok(snapshot) => snapshot,
            Err(expired) => return Ok(expired),
        };
        let Snapshot { revision, mut entries } = snapshot;
        let total = entries.len();
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".into(), json!(revision.to_string()));
        // kube-apiserver reads lists with resource version 0 from its cache and ignores the limit.
        let limit = if options.resource_version == "0" { 0 } else { options.limit };
        let mut more_after = None;
        if limit > 0 {
            let mut seen = 0;
            let mut kept = Vec::new();
            for (index, entry) in entries.into_iter().enumerate() {
                if selector.matches(&entry) {
                    kept.push(entry);
                }
                seen = index + 1;
                if kept.len() >= limit {
                    break;
                }
            }
            entries = kept;
            more_after =
                (seen < total).then(|| entries.last().map(|entry| entry.key().to_string())).flatten();
        } else if !selector.is_empty() {
            entries.retain(|entry| selector.matches(entry));
        }
        if let Some(last) = more_after {
            metadata.insert("continue".into(), json!(self.continue_token(&last, revision as i64)));
            if selector.is_empty() {
                metadata.insert("remainingItemCount".into(), json!(total - limit));
            }
        }
        // As in kube-apiserver, lists of built-in namespaced kinds have `items: null` instead of `[]` if there are
        // objects and the selector matches none.
        let of_namespaces = self.served.custom.is_none() && self.served.namespaced;
        if total > 0 && entries.is_empty() && of_namespaces {
            let (kind, api_version) = match self.format {
                Format::Json => (self.served.list_kind.clone(), self.served.api_version()),
                Format::Metadata => ("PartialObjectMetadataList".into(), "meta.k8s.io/v1".into()),
                _ => return Ok(self.reply_list(metadata, entries)),
            };
            let list = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": null});
            return Ok(Reply::json(200, &list));
        }
        Ok(self.reply_list(metadata, entries))
    }

    /// The objects to list. The inner error is a response: 410 with a continue token for an inconsistent continuation.
    fn snapshot(&self, mut range: Range, options: &ListOptions) -> ApiResult<Result<Snapshot, Reply>> {
        let store = &self.core.store;
        let storage = &self.resource.storage;
        if !options.continue_token.is_empty() {
            let (after, revision) = self.decode_token(&options.continue_token)?;
            if !matches!(options.resource_version.as_str(), "" | "0") {
                return Err(bad("specifying resource version is not allowed when using continue"));
            }
            range.after = Some(after.clone());
            let Ok(revision) = u64::try_from(revision) else { return Ok(Ok(store.list(storage, &range))) };
            self.check_not_future(revision)?;
            return Ok(store.list_at(storage, &range, revision).map_err(|_| {
                let mut status = Failure::gone(CONTINUE_EXPIRED).to_status();
                status["metadata"]["continue"] = json!(self.continue_token(&after, -1));
                Reply::json(410, &status)
            }));
        }
        let revision = options.revision()?;
        self.check_not_future(revision)?;
        let exact = options.exact || (options.limit > 0 && revision > 0 && !options.not_older_than);
        if !exact {
            return Ok(Ok(store.list(storage, &range)));
        }
        let snapshot = store.list_at(storage, &range, revision);
        Ok(Ok(snapshot.map_err(|_| Box::new(Failure::gone(LIST_EXPIRED)))?))
    }

    pub(crate) fn check_not_future(&self, revision: u64) -> ApiResult<()> {
        let current = self.core.store.revision();
        if revision <= current {
            return Ok(());
        }
        let why = format!("Timeout: Too large resource version: {revision}, current: {current}");
        let mut failure = Failure::new(504, "Timeout", why);
        failure.retry_after_seconds = Some(1);
        failure.causes.push(Cause {
            reason: "ResourceVersionTooLarge".into(),
            message: "Too large resource version".into(),
            field: None,
        });
        Err(Box::new(failure))
    }

    /// The prefix that is removed from keys in continue tokens: they are relative to the namespace of the request.
    fn key_prefix(&self) -> String {
        if self.path.namespace.is_empty() { String::new() } else { format!("{}/", self.path.namespace) }
    }

    fn continue_token(&self, last: &str, revision: i64) -> String {
        let relative = last.strip_prefix(self.key_prefix().as_str()).unwrap_or(last);
        let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": format!("{relative}\u{0}")});
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn decode_token(&self, token: &str) -> ApiResult<(String, i64)> {
        let invalid = |why: &str| bad(format!("invalid continue token: {why}"));
        // The offset that Go's error message states: the start of the group of four characters that cannot be decoded.
        let illegal = |_| {
            let stopped = token.len() / 4 * 4;
            invalid(&format!("continue key is not valid: illegal base64 data at input byte {stopped}"))
        };
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(illegal)?;
        let token: Value =
            serde_json::from_slice(&bytes).map_err(|_| invalid("continue key is not valid"))?;
        if token["v"] != "meta.k8s.io/v1" {
            let version = token["v"].as_str().unwrap_or_default();
            return Err(invalid(&format!(
                "continue key is not valid: server does not recognize this encoded version {version}"
            )));
        }
        let revision = token["rv"].as_i64().unwrap_or(0);
        if revision == 0 {
            return Err(invalid(
                "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ));
        }
        let start = token["start"].as_str().unwrap_or_default();
        if start.is_empty() {
            return Err(invalid(
                "continue key is not valid: encoded start key empty (version meta.k8s.io/v1)",
            ));
        }
        let escapes = start.split('/').any(|part| matches!(part, "" | "." | ".."));
        if escapes {
            return Err(invalid(&format!("continue key is not valid: {start}")));
        }
        Ok((format!("{}{}", self.key_prefix(), start.trim_end_matches('\u{0}')), revision))
    }

    pub(crate) fn reply_list(&self, mut metadata: Map<String, Value>, entries: Vec<Arc<Entry>>) -> Reply {
        let served = &self.served;
        if served.custom.is_some() && self.format == Format::Json {
            metadata.entry("continue").or_insert_with(|| json!(""));
        }
        match self.format {
            Format::Metadata => {
                let items: Vec<Value> =
                    entries.iter().map(|entry| partial_metadata(&entry.value())).collect();
                let list = json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                    "items": items,
                });
                Reply::json(200, &list)
            }
            Format::Table(_) => {
                let objects: Vec<Value> = entries.iter().map(|entry| self.present_entry(entry)).collect();
                self.reply_table(200, &metadata, &objects)
            }
            _ if self.presents_as_stored() => {
                let list = ListBody::new(
                    &served.list_kind,
                    &served.api_version(),
                    served.custom.is_some(),
                    &metadata,
                    entries,
                );
                Reply {
                    code: 200,
                    content_type: "application/json",
                    body: RespBody::List(list),
                    warnings: Vec::new(),
                    retry_after_seconds: None,
                }
            }
            _ => {
                let mut items: Vec<Value> = entries.iter().map(|entry| self.present_entry(entry)).collect();
                if served.custom.is_none() {
                    for fields in items.iter_mut().filter_map(Value::as_object_mut) {
                        fields.remove("kind");
                        fields.remove("apiVersion");
                    }
                }
                let list = json!({
                    "kind": served.list_kind, "apiVersion": served.api_version(), "metadata": metadata,
                    "items": items,
                });
                Reply::json(200, &list)
            }
        }
    }
}
