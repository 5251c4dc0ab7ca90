//! A parser for the subset of PromQL that the dashboards use: selectors, functions, aggregations with `by` in front, and
//! arithmetic with `on`. It keeps only names and labels of series. Any other syntax is an error.

/// A query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expression {
    Number,
    Selector {
        name: String,
        labels: Vec<String>,
    },
    /// A function call; the last argument is the value.
    Call {
        arguments: Vec<Expression>,
    },
    /// `by` is absent if all series are combined into one. `keeps_series` is set for aggregations that keep some series
    /// unchanged.
    Aggregation {
        by: Option<Vec<String>>,
        keeps_series: bool,
        arguments: Vec<Expression>,
    },
    Binary {
        on: Vec<String>,
        left: Box<Expression>,
        right: Box<Expression>,
    },
}

const AGGREGATIONS: [&str; 6] = ["sum", "avg", "min", "max", "count", "topk"];

struct Tokens<'a> {
    rest: &'a str,
}

pub(crate) fn parse(text: &str) -> Result<Expression, String> {
    let mut tokens = Tokens { rest: text };
    let expression = tokens.expression()?;
    match tokens.peek() {
        "" => Ok(expression),
        rest => Err(format!("{rest} after the end of {text}")),
    }
}

impl<'a> Tokens<'a> {
    /// The next word, number, text or sign; empty at the end.
    fn peek(&self) -> &'a str {
        let text = self.rest.trim_start();
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || "_:.$".contains(letter);
        let length = match text.chars().next() {
            None => 0,
            Some('"') => text[1..].find('"').map_or(text.len(), |end| end + 2),
            Some(first) if is_word(first) => text.find(|letter| !is_word(letter)).unwrap_or(text.len()),
            Some(_) if ["=~", "!=", "!~"].iter().any(|sign| text.starts_with(sign)) => 2,
            Some(first) => first.len_utf8(),
        };
        &text[..length]
    }

    fn next(&mut self) -> &'a str {
        let token = self.peek();
        self.rest = &self.rest.trim_start()[token.len()..];
        token
    }

    fn is_next(&mut self, wanted: &str) -> bool {
        let is_so = self.peek() == wanted;
        if is_so {
            self.next();
        }
        is_so
    }

    fn expect(&mut self, wanted: &str) -> Result<(), String> {
        let found = self.next();
        if found == wanted { Ok(()) } else { Err(format!("{found:?} in place of {wanted:?}")) }
    }

    fn expression(&mut self) -> Result<Expression, String> {
        let mut left = self.term()?;
        while ["+", "-", "*", "/", "or"].contains(&self.peek()) {
            self.next();
            let on = if self.is_next("on") { self.labels()? } else { Vec::new() };
            left = Expression::Binary { on, left: Box::new(left), right: Box::new(self.term()?) };
        }
        Ok(left)
    }

    fn term(&mut self) -> Result<Expression, String> {
        let token = self.next();
        match token.chars().next() {
            Some('(') => {
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            Some(first) if first.is_ascii_digit() => Ok(Expression::Number),
            Some(first) if first.is_ascii_alphabetic() => self.named(token),
            _ => Err(format!("{token:?} is no expression")),
        }
    }

    fn named(&mut self, name: &str) -> Result<Expression, String> {
        let by = if self.is_next("by") { Some(self.labels()?) } else { None };
        if self.is_next("(") {
            let mut arguments = vec![self.expression()?];
            while self.is_next(",") {
                arguments.push(self.expression()?);
            }
            self.expect(")")?;
            return Ok(match AGGREGATIONS.contains(&name) {
                true => Expression::Aggregation { by, keeps_series: name == "topk", arguments },
                false => Expression::Call { arguments },
            });
        }
        let mut labels = Vec::new();
        if self.is_next("{") {
            while !self.is_next("}") {
                labels.push(self.next().to_owned());
                let (sign, value) = (self.next(), self.next());
                if !["=", "=~", "!=", "!~"].contains(&sign) || !value.starts_with('"') {
                    return Err(format!("{sign:?} {value:?} in {name}"));
                }
                self.is_next(",");
            }
        }
        if self.is_next("[") {
            self.next();
            self.expect("]")?;
        }
        Ok(Expression::Selector { name: name.to_owned(), labels })
    }

    fn labels(&mut self) -> Result<Vec<String>, String> {
        self.expect("(")?;
        let mut labels = vec![self.next().to_owned()];
        while self.is_next(",") {
            labels.push(self.next().to_owned());
        }
        self.expect(")").map(|()| labels)
    }
}
