//! Label selectors such as `app=web,tier in (front,back),!canary,size>3`.
//!
//! Upstream: k8s.io/apimachinery/pkg/labels/selector.go

use crate::field::FieldError;
use serde_json::json;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

impl Requirement {
    fn matches(&self, actual: Option<&str>) -> bool {
        match (&self.operator, actual) {
            (Operator::Exists, actual) => actual.is_some(),
            (Operator::DoesNotExist, actual) => actual.is_none(),
            (Operator::In, Some(actual)) => self.values.iter().any(|value| value == actual),
            (Operator::NotIn, Some(actual)) => self.values.iter().all(|value| value != actual),
            (Operator::NotIn, None) => true,
            (Operator::GreaterThan | Operator::LessThan, Some(actual)) => {
                let (Ok(actual), Some(Ok(bound))) =
                    (actual.parse::<i64>(), self.values.first().map(|value| value.parse::<i64>()))
                else {
                    return false;
                };
                if self.operator == Operator::GreaterThan { actual > bound } else { actual < bound }
            }
            (Operator::In | Operator::GreaterThan | Operator::LessThan, None) => false,
        }
    }
}

/// A parsed label selector. A selector without requirements matches every object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

impl LabelSelector {
    pub fn parse(selector: &str) -> Result<Self, String> {
        Parser { tokens: scan(selector), position: 0 }.parse()
    }

    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(label(&requirement.key)))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Error(String),
    End,
    Close,
    Comma,
    Bang,
    DoubleEquals,
    Equals,
    GreaterThan,
    In(String),
    LessThan,
    NotEquals,
    NotIn(String),
    Open,
    Identifier(String),
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Error(text) | Self::In(text) | Self::NotIn(text) | Self::Identifier(text) => text,
            Self::End => "",
            Self::Close => ")",
            Self::Comma => ",",
            Self::Bang => "!",
            Self::DoubleEquals => "==",
            Self::Equals => "=",
            Self::GreaterThan => ">",
            Self::LessThan => "<",
            Self::NotEquals => "!=",
            Self::Open => "(",
        }
    }

    /// The token as a word. Where a key or value is expected, `in` and `notin` are ordinary words.
    fn as_word(&self) -> Option<&str> {
        match self {
            Self::In(text) | Self::NotIn(text) | Self::Identifier(text) => Some(text),
            _ => None,
        }
    }

    fn symbol(text: &str) -> Option<Self> {
        Some(match text {
            ")" => Self::Close,
            "," => Self::Comma,
            "!" => Self::Bang,
            "==" => Self::DoubleEquals,
            "=" => Self::Equals,
            ">" => Self::GreaterThan,
            "<" => Self::LessThan,
            "!=" => Self::NotEquals,
            "(" => Self::Open,
            _ => return None,
        })
    }
}

fn is_special(letter: char) -> bool {
    matches!(letter, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn is_blank(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\r' | '\n')
}

fn scan(selector: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = selector;
    loop {
        rest = rest.trim_start_matches(is_blank);
        let Some(first) = rest.chars().next() else {
            tokens.push(Token::End);
            return tokens;
        };
        if !is_special(first) {
            let end = rest.find(|letter| is_special(letter) || is_blank(letter)).unwrap_or(rest.len());
            tokens.push(match &rest[..end] {
                "in" => Token::In("in".into()),
                "notin" => Token::NotIn("notin".into()),
                word => Token::Identifier(word.into()),
            });
            rest = &rest[end..];
            continue;
        }
        // The operator is the longest prefix that is one.
        let run = rest.find(|letter| !is_special(letter)).unwrap_or(rest.len());
        let mut found = None;
        for end in 1..=run {
            match Token::symbol(&rest[..end]) {
                Some(token) => found = Some((token, end)),
                None if found.is_some() => break,
                None => {}
            }
        }
        match found {
            Some((token, end)) => {
                tokens.push(token);
                rest = &rest[end..];
            }
            None => {
                tokens.push(Token::Error(format!("error expected: keyword found '{}'", &rest[..run])));
                rest = &rest[run..];
            }
        }
    }
}

struct Parser {
    tokens: Vec<Token>,
    position: usize,
}

impl Parser {
    fn peek(&self) -> Token {
        self.tokens.get(self.position).cloned().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn parse(mut self) -> Result<LabelSelector, String> {
        let mut requirements = Vec::new();
        loop {
            let token = self.peek();
            if token == Token::End {
                break;
            }
            if token.as_word().is_none() && token != Token::Bang {
                return Err(format!("found '{}', expected: !, identifier, or 'end of string'", token.text()));
            }
            let requirement =
                self.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?;
            requirements.push(requirement);
            match self.next() {
                Token::End => break,
                Token::Comma => {
                    let after = self.peek();
                    if after.as_word().is_none() && after != Token::Bang {
                        return Err(format!("found '{}', expected: identifier after ','", after.text()));
                    }
                }
                other => {
                    return Err(format!("found '{}', expected: ',' or 'end of string'", other.text()));
                }
            }
        }
        Ok(LabelSelector { requirements })
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut token = self.next();
        let negated = token == Token::Bang;
        if negated {
            token = self.next();
        }
        let Some(key) = token.as_word().map(str::to_string) else {
            return Err(format!("found '{}', expected: identifier", token.text()));
        };
        check_key(&key)?;
        if negated {
            return Ok(Requirement { key, operator: Operator::DoesNotExist, values: Vec::new() });
        }
        if matches!(self.peek(), Token::End | Token::Comma) {
            return Ok(Requirement { key, operator: Operator::Exists, values: Vec::new() });
        }
        let operator = self.next();
        let (operator, values) = match operator {
            Token::In(_) => (Operator::In, self.values()?),
            Token::NotIn(_) => (Operator::NotIn, self.values()?),
            Token::Equals | Token::DoubleEquals => (Operator::In, self.value()?),
            Token::NotEquals => (Operator::NotIn, self.value()?),
            Token::GreaterThan => (Operator::GreaterThan, self.value()?),
            Token::LessThan => (Operator::LessThan, self.value()?),
            other => {
                let known = "in, notin, =, ==, !=, gt, lt";
                return Err(format!("found '{}', expected: {known}", other.text()));
            }
        };
        check_values(&key, &operator, &values)?;
        Ok(Requirement { key, operator, values })
    }

    fn value(&mut self) -> Result<Vec<String>, String> {
        if matches!(self.peek(), Token::End | Token::Comma) {
            return Ok(vec![String::new()]);
        }
        let token = self.next();
        match token.as_word() {
            Some(word) => Ok(vec![word.to_string()]),
            None => Err(format!("found '{}', expected: identifier", token.text())),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let open = self.next();
        if open != Token::Open {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        let first = self.peek();
        if first == Token::Close {
            self.next();
            return Ok(vec![String::new()]);
        }
        if first.as_word().is_none() && first != Token::Comma {
            return Err(format!("found '{}', expected: ',', ')' or identifier", first.text()));
        }
        let mut values = Vec::new();
        loop {
            let token = self.next();
            if let Some(word) = token.as_word() {
                values.push(word.to_string());
                match self.peek() {
                    Token::Comma => continue,
                    Token::Close => break,
                    other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
                }
            }
            if token != Token::Comma {
                return Err(format!("found '{}', expected: ',', or identifier", token.text()));
            }
            if values.is_empty() {
                values.push(String::new());
            }
            match self.peek() {
                Token::Close => {
                    values.push(String::new());
                    break;
                }
                Token::Comma => values.push(String::new()),
                _ => {}
            }
        }
        self.next();
        values.sort();
        values.dedup();
        Ok(values)
    }
}

const NAME_RULE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                         with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                         validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
                          '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  \
                          or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const PREFIX_RULE: &str = "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                           characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
                           'example.com', regex used for validation is \
                           '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn check_key(key: &str) -> Result<(), String> {
    let mut problems: Vec<String> = Vec::new();
    let parts: Vec<&str> = key.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".into());
            } else if !is_subdomain(prefix) {
                problems.push(PREFIX_RULE.into());
            }
            *name
        }
        _ => {
            let rule = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                 with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                 validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and \
                 '/' (e.g. 'example.com/MyName')";
            return Err(FieldError::invalid("", json!(key), rule).to_string());
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".into());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 bytes".into());
    }
    if !is_label_text(name) {
        problems.push(NAME_RULE.into());
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(FieldError::invalid("", json!(key), problems.join("; ")).to_string())
}

fn check_values(key: &str, operator: &Operator, values: &[String]) -> Result<(), String> {
    let mut errors = Vec::new();
    if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
        for (index, value) in values.iter().enumerate() {
            if value.parse::<i64>().is_err() {
                let rule = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push(FieldError::invalid(format!("values[{index}]"), json!(value), rule));
            }
        }
    }
    for (index, value) in values.iter().enumerate() {
        let mut problems = Vec::new();
        if value.len() > 63 {
            problems.push("must be no more than 63 bytes");
        }
        if !value.is_empty() && !is_label_text(value) {
            problems.push(VALUE_RULE);
        }
        if !problems.is_empty() {
            errors.push(FieldError::invalid(
                format!("values[{index}][{key}]"),
                json!(value),
                problems.join("; "),
            ));
        }
    }
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        more => Err(format!("[{}]", more.join(", "))),
    }
}

fn is_label_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= 253
        && text.split('.').all(|part| {
            let bytes = part.as_bytes();
            let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            bytes.first().is_some_and(plain)
                && bytes.last().is_some_and(plain)
                && bytes.iter().all(|byte| plain(byte) || *byte == b'-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
        LabelSelector::parse(selector).unwrap().matches(|key| labels.get(key).copied())
    }

    #[test]
    fn set_based_selectors_match_as_documented() {
        let labels = &[("app", "web"), ("tier", "front"), ("size", "4")];
        for selector in [
            "",
            "app=web",
            "app==web,tier!=back",
            "app in (web, db)",
            "tier notin (back)",
            "zone notin (a)",
            "app,!zone",
            "size>3,size<5",
            "in!=x",
            "x notin (in)",
        ] {
            assert!(matches(selector, labels), "{selector}");
        }
        for selector in ["app=db", "app!=web", "app notin (web)", "zone", "!app", "size>4", "zone=", "app>1"]
        {
            assert!(!matches(selector, labels), "{selector}");
        }
        assert!(matches("zone in (,a)", &[("zone", "")]));
        assert!(matches("zone=", &[("zone", "")]));
    }

    #[test]
    fn invalid_selectors_have_kube_apiserver_messages() {
        let refused = |selector: &str| LabelSelector::parse(selector).unwrap_err();
        assert_eq!(refused("a in x"), "unable to parse requirement: found 'x' expected: '('");
        assert_eq!(refused("a,"), "found '', expected: identifier after ','");
        assert_eq!(refused("=a"), "found '=', expected: !, identifier, or 'end of string'");
        assert_eq!(
            refused("a b"),
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"
        );
        assert!(refused("a=-b").starts_with(
            "unable to parse requirement: values[0][a]: Invalid value: \"-b\": a valid label must be"
        ));
        assert!(refused("/a=b").contains("<nil>: Invalid value: \"/a\": prefix part must be non-empty"));
    }

    proptest! {
        #[test]
        fn arbitrary_selectors_do_not_panic(text in "[a-c=!(),<> in]{0,24}") {
            let _ = LabelSelector::parse(&text);
        }

        #[test]
        fn negated_selector_is_complement(
            value in "[a-c]{1,2}",
            other in "[a-c]{1,2}",
            labels in proptest::collection::btree_map("[xy]", "[a-c]{1,2}", 0..3),
        ) {
            let holds = |selector: String| {
                LabelSelector::parse(&selector).unwrap().matches(|key| labels.get(key).map(String::as_str))
            };
            prop_assert_ne!(holds(format!("x={value}")), holds(format!("x!={value}")));
            prop_assert_ne!(
                holds(format!("x in ({value},{other})")),
                holds(format!("x notin ({other},{value})"))
            );
            prop_assert_ne!(holds("x".into()), holds("!x".into()));
            prop_assert_eq!(
                holds(format!("x={value},y={other}")),
                holds(format!("x={value}")) && holds(format!("y={other}"))
            );
        }
    }
}
