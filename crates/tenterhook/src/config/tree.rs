//! The tree of a configuration: values that remember where they came from.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Value;
use toml::de::{DeTable, DeValue};

/// The key that says which of several kinds a table is.
pub(crate) const USE: &str = "use";

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nobody said anything: a default, built in or of the task.
    Default,
    /// The file, from byte to byte.
    File { key: Range<usize>, value: Range<usize> },
    /// An environment variable, as `NAME=value`.
    Environment(String),
    /// `--set`, as it was given.
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

/// A text that is no TOML, or a number that TOML allows and we cannot hold, with its place.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Unreadable {
    pub(crate) at: Range<usize>,
    pub(crate) message: String,
}

impl From<toml::de::Error> for Unreadable {
    fn from(error: toml::de::Error) -> Unreadable {
        Unreadable { at: error.span().unwrap_or(0..0), message: error.message().to_owned() }
    }
}

impl Node {
    pub(crate) fn empty_table(origin: Origin) -> Node {
        Node { kind: Kind::Table(BTreeMap::new()), origin }
    }

    /// A parsed table. `origin` is told the places of key and value.
    pub(crate) fn of_table(
        table: &DeTable<'_>,
        origin: &dyn Fn(Range<usize>, Range<usize>) -> Origin,
    ) -> Result<BTreeMap<String, Node>, Unreadable> {
        let mut entries = BTreeMap::new();
        for (key, value) in table {
            let node = Node::of(value.get_ref(), &key.span(), &value.span(), origin)?;
            entries.insert(key.get_ref().to_string(), node);
        }
        Ok(entries)
    }

    /// A parsed value.
    pub(crate) fn of(
        value: &DeValue<'_>,
        key: &Range<usize>,
        at: &Range<usize>,
        origin: &dyn Fn(Range<usize>, Range<usize>) -> Origin,
    ) -> Result<Node, Unreadable> {
        let unreadable = |text: &str| Unreadable {
            at: at.clone(),
            message: format!("the number {text} is too large: whole numbers have 64 bits"),
        };
        let kind = match value {
            DeValue::String(text) => Kind::Leaf(Value::String(text.to_string())),
            DeValue::Integer(number) => {
                let parsed = i64::from_str_radix(number.as_str(), number.radix());
                Kind::Leaf(Value::Integer(parsed.map_err(|_| unreadable(number.as_str()))?))
            }
            DeValue::Float(number) => {
                let parsed = number.as_str().parse();
                Kind::Leaf(Value::Float(parsed.map_err(|_| unreadable(number.as_str()))?))
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

    /// Lays another node over this one: tables merge by key, everything else is replaced. A table that
    /// names another kind in `use` replaces too, so that the options of one kind never reach another.
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

    /// The node a step further: by key, or by index.
    pub(crate) fn child(&self, step: &str) -> Option<&Node> {
        match &self.kind {
            Kind::Table(entries) => entries.get(step),
            Kind::Array(items) => items.get(step.parse::<usize>().ok()?),
            Kind::Leaf(_) => None,
        }
    }

    /// The child that a dotted key begins with, and the rest of the key. A key of a table may have dots itself.
    pub(crate) fn begin<'k>(&self, key: &'k str) -> Option<(&Node, &'k str)> {
        let ends = key.match_indices('.').map(|(at, _)| at).chain([key.len()]);
        ends.into_iter().find_map(|end| {
            let child = self.child(&key[..end])?;
            Some((child, key[end..].strip_prefix('.').unwrap_or_default()))
        })
    }

    /// What a dotted key names.
    pub(crate) fn follow(&self, key: &str) -> Option<&Node> {
        let (mut node, mut rest) = (self, key);
        while !rest.is_empty() {
            (node, rest) = node.begin(rest)?;
        }
        Some(node)
    }

    /// Takes an entry out of a table.
    pub(crate) fn take(&mut self, key: &str) {
        if let Kind::Table(entries) = &mut self.kind {
            entries.remove(key);
        }
    }

    /// The text of a leaf below this table.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        match &self.child(key)?.kind {
            Kind::Leaf(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The plain value.
    pub(crate) fn value(&self) -> Value {
        match &self.kind {
            Kind::Leaf(value) => value.clone(),
            Kind::Array(items) => Value::Array(items.iter().map(Node::value).collect()),
            Kind::Table(entries) => {
                Value::Table(entries.iter().map(|(key, node)| (key.clone(), node.value())).collect())
            }
        }
    }

    /// The origin of what a dotted key names, and whether it is of that very key: where there is
    /// nothing under it, the nearest table around it that somebody wrote answers.
    pub(crate) fn origin_of(&self, key: &str) -> (&Origin, bool) {
        let (mut node, mut best, mut rest) = (self, &self.origin, key);
        while !rest.is_empty() {
            let Some((child, after)) = node.begin(rest) else { break };
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
