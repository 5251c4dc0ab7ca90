//! The patterns by which programs for upstream's log recognize a line: the order of the keys, and the values.
//!
//! awslabs' LogParserForKarpenter finds the message between the keys `message` and `commit`, and each value between two
//! keys that it expects to be adjacent. So the order of keys must not change.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

/// A line that matches its pattern.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) time: String,
    pub(super) message: String,
    /// The values that the pattern captures.
    pub(super) values: BTreeMap<&'static str, String>,
    /// The line as JSON.
    pub(super) line: Value,
}

/// The fields of a message. For each value that is captured: its name and the text around it.
struct Pattern {
    message: &'static str,
    level: &'static str,
    controllers: &'static [&'static str],
    regex: Regex,
}

const OBJECT: &str = r#"\{"name":"([^"]+)"\}"#;

/// In a template, `<name>` is a quoted string, `{name}` a reference to an object, `#name` a number, and `...`
/// anything.
fn pattern(
    message: &'static str,
    level: &'static str,
    controllers: &'static [&'static str],
    template: &str,
) -> Pattern {
    let text = Regex::new("<([a-z]+)>").expect("a pattern");
    let object = Regex::new(r"\\\{([a-z]+)\\\}").expect("a pattern");
    let number = Regex::new(r"\\#([a-z]+)").expect("a pattern");
    let regex = regex::escape(template);
    let regex = text.replace_all(&regex, r#""(?<$1>[^"]*)""#);
    let regex = object.replace_all(&regex, |found: &regex::Captures<'_>| {
        OBJECT.replace("([^", &format!("(?<{}>[^", &found[1]))
    });
    let regex = number.replace_all(&regex, r"(?<$1>\d+)");
    let regex = regex.replace(r"\.\.\.", ".*");
    Pattern { message, level, controllers, regex: Regex::new(&regex).expect("a pattern") }
}

const LIFECYCLE: &[&str] = &["nodeclaim.lifecycle"];
const TERMINATION: &[&str] = &["node.termination"];
const PROVISIONER: &[&str] = &["provisioner"];

pub(super) struct Patterns(Vec<Pattern>);

impl Patterns {
    pub(super) fn of_upstream() -> Self {
        let of_claim = r#""controllerGroup":"karpenter.sh","controllerKind":"NodeClaim","NodeClaim":{claim},"namespace":"",..."#;
        let of_node = r#""controllerGroup":"","controllerKind":"Node","Node":{node},"namespace":"",..."#;
        let of_cluster = r#""namespace":"","name":"","reconcileID":<id>,"#;
        let makers = &["provisioner", "disruption"];
        Self(vec![
            pattern(
                "found provisionable pod(s)",
                "INFO",
                PROVISIONER,
                &format!(r#"{of_cluster}"Pods":<pods>,"duration":<duration>"#),
            ),
            pattern(
                "computed new nodeclaim(s) to fit pod(s)",
                "INFO",
                PROVISIONER,
                &format!(r#"{of_cluster}"nodeclaims":#claims,"pods":#pods"#),
            ),
            pattern(
                "created nodeclaim",
                "INFO",
                makers,
                &format!(
                    r#"{of_cluster}"NodePool":{{pool}},"NodeClaim":{{claim}},"requests":...,"instance-types":<types>"#
                ),
            ),
            pattern(
                "could not schedule pod",
                "ERROR",
                PROVISIONER,
                &format!(r#"{of_cluster}"Pod":...,"error":<error>"#),
            ),
            pattern(
                "launched nodeclaim",
                "INFO",
                LIFECYCLE,
                &format!(
                    r#"{of_claim},"provider-id":<instance>,"instance-type":<type>,"zone":<zone>,"capacity-type":<capacity>,"allocatable":"#
                ),
            ),
            pattern(
                "registered nodeclaim",
                "INFO",
                LIFECYCLE,
                &format!(r#"{of_claim},"provider-id":<instance>,"Node":{{node}}"#),
            ),
            pattern(
                "initialized nodeclaim",
                "INFO",
                LIFECYCLE,
                &format!(r#"{of_claim},"provider-id":<instance>,"Node":{{node}},"allocatable":"#),
            ),
            pattern(
                "disrupting node(s)",
                "INFO",
                &["disruption"],
                &format!(
                    r#"{of_cluster}"command":<command>,"decision":<decision>,"disrupted-node-count":#nodes,"replacement-node-count":#replacements,"pod-count":#pods,"disrupted-nodes":[...,"NodeClaim":{{claim}},"capacity-type":<capacity>,"instance-type":<type>...],"replacement-nodes":["#
                ),
            ),
            pattern(
                "annotated nodeclaim",
                "INFO",
                LIFECYCLE,
                &format!(r#"{of_claim},"karpenter.sh/nodeclaim-termination-timestamp":<deadline>"#),
            ),
            pattern(
                "tainted node",
                "INFO",
                TERMINATION,
                &format!(
                    r#"{of_node},"NodeClaim":{{claim}},"taint.Key":<key>,"taint.Value":<value>,"taint.Effect":<effect>"#
                ),
            ),
            pattern("deleted node", "INFO", TERMINATION, &format!(r#"{of_node},"NodeClaim":{{claim}}"#)),
            pattern("deleted nodeclaim", "INFO", LIFECYCLE, of_claim),
        ])
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|pattern| pattern.message)
    }

    /// Matches a line with the patterns; `None` if upstream has no such message.
    pub(super) fn find(&self, text: &str) -> Option<Found> {
        let head = Regex::new(
            r#"^\{"level":"([A-Z]+)","time":"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)","logger":"controller","message":"(.*)","commit":"([0-9a-z-]+)","#,
        );
        let head = head.expect("a pattern").captures(text).unwrap_or_else(|| panic!("no head: {text}"));
        let pattern = self.0.iter().find(|pattern| pattern.message == &head[3])?;
        let line: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(&head[1], pattern.level, "{text}");
        let controller = line["controller"].as_str().unwrap_or_default();
        assert!(pattern.controllers.contains(&controller), "{text}");
        let found = pattern.regex.captures(text);
        let found = found.unwrap_or_else(|| panic!("not found: {}\nin: {text}", pattern.regex));
        let names =
            ["claim", "node", "pool", "instance", "type", "types", "zone", "capacity", "command", "decision"];
        let values = names.into_iter().filter_map(|name| Some((name, found.name(name)?.as_str().to_owned())));
        Some(Found { time: head[2].to_owned(), message: head[3].to_owned(), values: values.collect(), line })
    }
}
