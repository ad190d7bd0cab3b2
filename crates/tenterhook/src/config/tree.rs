//! The tree of a configuration: values with their origins.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Value;
use toml::de::{DeTable, DeValue};

/// The key that names the kind of a table.
pub(crate) const USE: &str = "use";

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A default, built in or of the task.
    Default,
    /// The file, with byte ranges.
    File { key: Range<usize>, value: Range<usize> },
    /// An environment variable, as `NAME=value`.
    Environment(String),
    /// `--set`, as `key=value`.
    Set(String),
}

/// A value with its origin.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) origin: Origin,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Leaf(Value),
    Array(Vec<Node>),
    Table(BTreeMap<String, Node>),
}

/// An error in the syntax of TOML, or a number that does not fit 64 bits.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ParseError {
    pub(crate) at: Range<usize>,
    pub(crate) message: String,
}

impl From<toml::de::Error> for ParseError {
    fn from(error: toml::de::Error) -> ParseError {
        ParseError { at: error.span().unwrap_or(0..0), message: error.message().to_owned() }
    }
}

impl Node {
    pub(crate) fn empty_table(origin: Origin) -> Node {
        Node { kind: Kind::Table(BTreeMap::new()), origin }
    }

    /// Converts a parsed table. `origin` gets the byte ranges of key and value.
    pub(crate) fn of_table(
        table: &DeTable<'_>,
        origin: &dyn Fn(Range<usize>, Range<usize>) -> Origin,
    ) -> Result<BTreeMap<String, Node>, ParseError> {
        let mut entries = BTreeMap::new();
        for (key, value) in table {
            let node = Node::of(value.get_ref(), &key.span(), &value.span(), origin)?;
            entries.insert(key.get_ref().to_string(), node);
        }
        Ok(entries)
    }

    /// Converts a parsed value.
    pub(crate) fn of(
        value: &DeValue<'_>,
        key: &Range<usize>,
        at: &Range<usize>,
        origin: &dyn Fn(Range<usize>, Range<usize>) -> Origin,
    ) -> Result<Node, ParseError> {
        let too_large = |text: &str| ParseError {
            at: at.clone(),
            message: format!("the number {text} is too large: whole numbers have 64 bits"),
        };
        let kind = match value {
            DeValue::String(text) => Kind::Leaf(Value::String(text.to_string())),
            DeValue::Integer(number) => {
                let parsed = i64::from_str_radix(number.as_str(), number.radix());
                Kind::Leaf(Value::Integer(parsed.map_err(|_| too_large(number.as_str()))?))
            }
            DeValue::Float(number) => {
                let parsed = number.as_str().parse();
                Kind::Leaf(Value::Float(parsed.map_err(|_| too_large(number.as_str()))?))
            }
            DeValue::Boolean(switch) => Kind::Leaf(Value::Boolean(*switch)),
            DeValue::Datetime(date) => Kind::Leaf(Value::Datetime(*date)),
            DeValue::Array(items) => {
                let items =
                    items.iter().map(|item| Node::of(item.get_ref(), &item.span(), &item.span(), origin));
                Kind::Array(items.collect::<Result<_, _>>()?)
            }
            DeValue::Table(table) => Kind::Table(Node::of_table(table, origin)?),
        };
        Ok(Node { kind, origin: origin(key.clone(), at.clone()) })
    }

    /// Merges a higher layer into this one: tables by key, everything else is replaced. A table with another
    /// `use` replaces too, so that the options of one kind never reach another.
    pub(crate) fn merge(&mut self, over: Node) {
        match (&mut self.kind, over) {
            (Kind::Table(low), Node { kind: Kind::Table(high), origin })
                if !is_of_another_kind(low, &high) =>
            {
                if self.origin == Origin::Default {
                    self.origin = origin;
                }
                for (key, node) in high {
                    match low.get_mut(&key) {
                        Some(below) => below.merge(node),
                        None => {
                            low.insert(key, node);
                        }
                    }
                }
            }
            (_, over) => *self = over,
        }
    }

    /// The child at this key or index.
    pub(crate) fn child(&self, step: &str) -> Option<&Node> {
        match &self.kind {
            Kind::Table(entries) => entries.get(step),
            Kind::Array(items) => items.get(step.parse::<usize>().ok()?),
            Kind::Leaf(_) => None,
        }
    }

    /// The child that a dotted key begins with, and the rest of the key. Keys of a table may contain dots.
    fn split_key<'k>(&self, key: &'k str) -> Option<(&Node, &'k str)> {
        let ends = key.match_indices('.').map(|(at, _)| at).chain([key.len()]);
        ends.into_iter().find_map(|end| {
            let child = self.child(&key[..end])?;
            Some((child, key[end..].strip_prefix('.').unwrap_or_default()))
        })
    }

    /// The node at a dotted key.
    pub(crate) fn lookup(&self, key: &str) -> Option<&Node> {
        let (mut node, mut rest) = (self, key);
        while !rest.is_empty() {
            (node, rest) = node.split_key(rest)?;
        }
        Some(node)
    }

    /// Removes an entry of a table.
    pub(crate) fn remove(&mut self, key: &str) {
        if let Kind::Table(entries) = &mut self.kind {
            entries.remove(key);
        }
    }

    /// The text at a key of this table.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        match &self.child(key)?.kind {
            Kind::Leaf(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The value without origins.
    pub(crate) fn value(&self) -> Value {
        match &self.kind {
            Kind::Leaf(value) => value.clone(),
            Kind::Array(items) => Value::Array(items.iter().map(Node::value).collect()),
            Kind::Table(entries) => {
                Value::Table(entries.iter().map(|(key, node)| (key.clone(), node.value())).collect())
            }
        }
    }

    /// The origin of the value at a dotted key, and whether it is of that very key. If the key is not set, it
    /// is the origin of the nearest table around it that is set.
    pub(crate) fn origin_of(&self, key: &str) -> (&Origin, bool) {
        let (mut node, mut best, mut rest) = (self, &self.origin, key);
        while !rest.is_empty() {
            let Some((child, after)) = node.split_key(rest) else { break };
            (node, rest) = (child, after);
            if node.origin != Origin::Default {
                best = &node.origin;
            }
        }
        let exact = rest.is_empty() && node.origin != Origin::Default;
        (if exact { &node.origin } else { best }, exact)
    }
}

fn is_of_another_kind(low: &BTreeMap<String, Node>, high: &BTreeMap<String, Node>) -> bool {
    match (low.get(USE), high.get(USE)) {
        (Some(low), Some(high)) => low.value() != high.value(),
        _ => false,
    }
}
