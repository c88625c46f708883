//! A document that a JSON patch changes step by step.
//!
//! An object is sorted when a step first goes into it and keeps its written order until then: that is the order in which
//! Kubernetes shows a patched document. Every step costs as much as its own path and value, never the document.

use std::borrow::Cow;
use std::collections::BTreeMap;

use setpoint_api::quote::quote;

use super::go_print::string_bytes;
use super::items::Items;
use crate::json::{Json, NESTING_MAX};

/// A value within the document.
#[derive(Debug, Clone)]
pub(super) struct Node<'a> {
    /// Never less than the levels of brackets below and at this node, so that nesting can be refused in time.
    height: usize,
    content: Content<'a>,
}

#[derive(Debug, Clone)]
enum Content<'a> {
    Scalar(Json<'a>),
    /// An object that no step has entered yet.
    Written(Vec<(Cow<'a, str>, Node<'a>)>),
    Object(BTreeMap<Cow<'a, str>, Node<'a>>),
    Array(Items<Node<'a>>),
}

impl<'a> Node<'a> {
    /// null
    pub fn null() -> Self {
        Node { height: 0, content: Content::Scalar(Json::Null) }
    }

    /// Whether this is null.
    pub fn is_null(&self) -> bool {
        matches!(self.content, Content::Scalar(Json::Null))
    }

    /// Whether this is an object or an array.
    pub fn is_container(&self) -> bool {
        !matches!(self.content, Content::Scalar(_))
    }

    /// Sorts an object, as is done before the first step into it.
    pub fn open(&mut self) {
        if let Content::Written(fields) = &mut self.content {
            self.content = Content::Object(std::mem::take(fields).into_iter().collect());
        }
    }

    /// The object or array that holds what `pointer` names, and the last part of the pointer. A value that reaches
    /// `reach` levels deep is about to be put there: the nodes on the way take note.
    ///
    /// What stands before the first slash is ignored, as Kubernetes does.
    pub fn holder(&mut self, pointer: &str, reach: usize) -> Result<(&mut Node<'a>, String), HolderError> {
        let depth = pointer.matches('/').count();
        if depth + reach > NESTING_MAX && reach > 0 {
            return Err(HolderError::TooDeep);
        }
        let mut parts = pointer.split('/').skip(1).map(unescape).peekable();
        let mut at = self;
        let mut below = depth;
        while let Some(part) = parts.next() {
            at.height = at.height.max(below + reach);
            at.open();
            if parts.peek().is_none() {
                return if at.is_container() { Ok((at, part)) } else { Err(HolderError::Missing) };
            }
            at = at.child(&part).ok_or(HolderError::Missing)?;
            below -= 1;
        }
        Err(HolderError::Missing)
    }

    /// The value at a key; `None` if an object doesn't have it. Only an array can fail.
    pub fn get(&mut self, key: &str) -> Result<Option<&mut Node<'a>>, String> {
        self.open();
        match &mut self.content {
            Content::Object(fields) => Ok(fields.get_mut(key)),
            Content::Array(items) => {
                let index = existing_index(key, items.len())?;
                Ok(items.get_mut(index))
            }
            Content::Scalar(_) | Content::Written(_) => Ok(None),
        }
    }

    /// Puts a value at a key of an object, or before an index of an array; `-` is the end.
    pub fn add(&mut self, key: &str, value: Node<'a>) -> Result<(), String> {
        self.open();
        match &mut self.content {
            Content::Object(fields) => {
                fields.insert(Cow::Owned(key.to_owned()), value);
            }
            Content::Array(items) => {
                let index = match key {
                    "-" => items.len(),
                    _ => new_index(key, items.len())?,
                };
                items.insert(index, value);
            }
            Content::Scalar(_) | Content::Written(_) => {}
        }
        Ok(())
    }

    /// Puts a value in place of the one at a key. An object takes a new key too, as in Kubernetes.
    pub fn set(&mut self, key: &str, value: Node<'a>) -> Result<(), String> {
        match self.get(key)? {
            Some(place) => *place = value,
            None => self.add(key, value)?,
        }
        Ok(())
    }

    /// Takes the value at a key.
    pub fn remove(&mut self, key: &str) -> Result<Node<'a>, String> {
        self.open();
        match &mut self.content {
            Content::Object(fields) => {
                fields.remove(key).ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value"))
            }
            Content::Array(items) => {
                let index = existing_index(key, items.len())?;
                Ok(items.remove(index))
            }
            Content::Scalar(_) | Content::Written(_) => Ok(Node::null()),
        }
    }

    /// Whether both are the same document. Numbers are compared by their digits: `1` is not `1.0`.
    pub fn equals(&mut self, other: &mut Node<'a>) -> bool {
        self.open();
        other.open();
        match (&mut self.content, &mut other.content) {
            (Content::Scalar(left), Content::Scalar(right)) => left == right,
            (Content::Object(left), Content::Object(right)) => {
                left.len() == right.len() && left.iter_mut().zip(right).all(|((a, x), (b, y))| a == b && x.equals(y))
            }
            (Content::Array(left), Content::Array(right)) => {
                left.len() == right.len()
                    && (0..left.len()).all(|index| match (left.get_mut(index), right.get_mut(index)) {
                        (Some(x), Some(y)) => x.equals(y),
                        _ => false,
                    })
            }
            _ => false,
        }
    }

    /// Levels of brackets, at most.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Bytes of this value as JSON.
    pub fn json_bytes(&self) -> usize {
        // Brackets and the commas between.
        let frame = |count: usize| 2 + count.saturating_sub(1);
        match &self.content {
            Content::Scalar(Json::Bool(true) | Json::Null) => 4,
            Content::Scalar(Json::Bool(false)) => 5,
            Content::Scalar(Json::Number(text)) => text.len(),
            Content::Scalar(Json::String(text)) => string_bytes(text),
            Content::Scalar(Json::Array(_) | Json::Object(_)) => 2,
            Content::Written(fields) => {
                fields.iter().map(|(key, value)| string_bytes(key) + 1 + value.json_bytes()).sum::<usize>()
                    + frame(fields.len())
            }
            Content::Object(fields) => {
                fields.iter().map(|(key, value)| string_bytes(key) + 1 + value.json_bytes()).sum::<usize>()
                    + frame(fields.len())
            }
            Content::Array(items) => items.iter().map(Node::json_bytes).sum::<usize>() + frame(items.len()),
        }
    }

    /// A step into the tree; `None` if there is nothing to step into.
    fn child(&mut self, key: &str) -> Option<&mut Node<'a>> {
        self.get(key).ok().flatten().filter(|node| node.is_container())
    }
}

/// Why there is no place for a pointer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HolderError {
    /// Nothing is there.
    Missing,
    /// The document would be nested deeper than documents may be.
    TooDeep,
}

impl<'a> From<Json<'a>> for Node<'a> {
    fn from(json: Json<'a>) -> Self {
        match json {
            Json::Array(items) => {
                let mut height = 0;
                let items =
                    items.into_iter().map(Node::from).inspect(|item| height = height.max(item.height)).collect();
                Node { height: height + 1, content: Content::Array(items) }
            }
            Json::Object(fields) => {
                let fields: Vec<_> = fields.into_iter().map(|(key, value)| (key, Node::from(value))).collect();
                let height = fields.iter().map(|(_, value)| value.height).max().unwrap_or(0) + 1;
                Node { height, content: Content::Written(fields) }
            }
            scalar => Node { height: 0, content: Content::Scalar(scalar) },
        }
    }
}

impl<'a> From<Node<'a>> for Json<'a> {
    fn from(node: Node<'a>) -> Self {
        match node.content {
            Content::Scalar(scalar) => scalar,
            Content::Written(fields) => {
                Json::Object(fields.into_iter().map(|(key, value)| (key, value.into())).collect())
            }
            Content::Object(fields) => {
                Json::Object(fields.into_iter().map(|(key, value)| (key, value.into())).collect())
            }
            Content::Array(Items::Short(items)) => Json::Array(items.into_iter().map(Json::from).collect()),
            Content::Array(Items::Long(items)) => Json::Array(items.into_iter().map(Json::from).collect()),
        }
    }
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// Where a new item goes in an array of `length`; negative numbers count from behind the last.
fn new_index(key: &str, length: usize) -> Result<usize, String> {
    let wanted = atoi(key).map_err(|error| format!("value was not a proper array index: '{key}': {error}"))?;
    index(wanted, length + 1)
}

/// The place of an item in an array of `length`; negative numbers count from the end.
fn existing_index(key: &str, length: usize) -> Result<usize, String> {
    index(atoi(key)?, length)
}

fn index(wanted: i64, length: usize) -> Result<usize, String> {
    let from_start = if wanted < 0 { wanted.saturating_add_unsigned(length as u64) } else { wanted };
    usize::try_from(from_start)
        .ok()
        .filter(|index| *index < length)
        .ok_or_else(|| format!("Unable to access invalid index: {wanted}: invalid index referenced"))
}

fn atoi(text: &str) -> Result<i64, String> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    text.parse::<i64>().map_err(|error| {
        let why = match error.kind() {
            PosOverflow | NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.Atoi: parsing {}: {why}", quote(text))
    })
}
