//! What validation found wrong, in the order it was found.

use setpoint_api::{BadValue, FieldError, Path};

use crate::internal_form;
use crate::node::Node;
use crate::types::Shape;

/// Collects field errors. Each method names the place by its [`Node`].
#[derive(Debug, Default)]
pub struct Errors {
    found: Vec<FieldError>,
    /// What is wrong and was so before: the user is told, and it counts for nothing.
    forgiven: Vec<FieldError>,
}

impl Errors {
    /// Nothing wrong so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what is wrong and was so before.
    pub fn forgive(&mut self, found: Vec<FieldError>) {
        self.forgiven.extend(found);
    }

    /// All errors, and what was forgiven as texts for the user.
    pub fn into_parts(self) -> (Vec<FieldError>, Vec<String>) {
        (self.found, self.forgiven.iter().map(ToString::to_string).collect())
    }

    /// A value is missing.
    pub fn required(&mut self, at: &Node<'_>, detail: impl Into<String>) {
        self.push_at(at, FieldError::required(&Path::nil(), detail));
    }

    /// The value is malformed or out of bounds.
    pub fn invalid(&mut self, at: &Node<'_>, value: impl Into<BadValue>, detail: impl Into<String>) {
        self.push_at(at, FieldError::invalid(&Path::nil(), shown(at, value.into()), detail));
    }

    /// The value at this place is malformed or out of bounds; it is shown as it is.
    pub fn invalid_here(&mut self, at: &Node<'_>, detail: impl Into<String>) {
        self.invalid(at, internal_form::shown(at), detail);
    }

    /// One error for each complaint about the value, as the rules of `setpoint_api::name` give them.
    pub fn invalid_each(
        &mut self,
        at: &Node<'_>,
        value: &str,
        complaints: impl IntoIterator<Item = impl Into<String>>,
    ) {
        for complaint in complaints {
            self.invalid(at, value, complaint);
        }
    }

    /// The value has the wrong type.
    pub fn type_invalid(&mut self, at: &Node<'_>, value: impl Into<BadValue>, detail: impl Into<String>) {
        self.push_at(at, FieldError::type_invalid(&Path::nil(), value.into(), detail));
    }

    /// The value is none of `supported`, which are shown in the order given.
    pub fn not_supported(&mut self, at: &Node<'_>, value: impl Into<BadValue>, supported: &[impl AsRef<str>]) {
        self.push_at(at, FieldError::not_supported(&Path::nil(), shown(at, value.into()), supported));
    }

    /// The value is not allowed here and now.
    pub fn forbidden(&mut self, at: &Node<'_>, detail: impl Into<String>) {
        self.push_at(at, FieldError::forbidden(&Path::nil(), detail));
    }

    /// The value is there twice.
    pub fn duplicate(&mut self, at: &Node<'_>, value: impl Into<BadValue>) {
        self.push_at(at, FieldError::duplicate(&Path::nil(), shown(at, value.into())));
    }

    /// The value names something that doesn't exist.
    pub fn not_found(&mut self, at: &Node<'_>, value: impl Into<BadValue>) {
        self.push_at(at, FieldError::not_found(&Path::nil(), shown(at, value.into())));
    }

    /// More than `max` bytes.
    pub fn too_long(&mut self, at: &Node<'_>, max: usize) {
        self.push_at(at, FieldError::too_long(&Path::nil(), max));
    }

    /// More than `max` characters.
    pub fn too_long_characters(&mut self, at: &Node<'_>, max: usize) {
        self.push_at(at, FieldError::too_long_characters(&Path::nil(), max));
    }

    /// More than `max` items.
    pub fn too_many(&mut self, at: &Node<'_>, actual: usize, max: usize) {
        self.push_at(at, FieldError::too_many(&Path::nil(), Some(actual), max));
    }

    /// Fewer than `min` items.
    pub fn too_few(&mut self, at: &Node<'_>, actual: usize, min: usize) {
        self.push_at(at, FieldError::too_few(&Path::nil(), actual, min));
    }

    /// Not the user's fault.
    pub fn internal(&mut self, at: &Node<'_>, cause: impl std::fmt::Display) {
        self.push_at(at, FieldError::internal(&Path::nil(), cause));
    }

    /// `field is immutable`, if the two differ in meaning.
    pub fn immutable(&mut self, new: &Node<'_>, old: &Node<'_>) {
        if !new.same(old) {
            self.invalid(new, zero_shown(new), "field is immutable");
        }
    }

    /// An error made elsewhere, with its path.
    pub fn push(&mut self, error: FieldError) {
        self.found.push(error);
    }

    /// How many were found.
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Whether one of those found is like this.
    pub fn any(&self, is_such: impl FnMut(&FieldError) -> bool) -> bool {
        self.found.iter().any(is_such)
    }

    /// Nothing wrong.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// All of them, in order.
    pub fn into_vec(self) -> Vec<FieldError> {
        self.found
    }

    fn push_at(&mut self, at: &Node<'_>, error: FieldError) {
        self.found.push(error.at(at.path()));
    }
}

impl Extend<FieldError> for Errors {
    fn extend<T: IntoIterator<Item = FieldError>>(&mut self, errors: T) {
        self.found.extend(errors);
    }
}

/// Texts of a named Go type are shown as JSON, which quotes `<`, `>` and `&` differently.
fn shown(at: &Node<'_>, value: BadValue) -> BadValue {
    let named = at.ty().is_some_and(|t| matches!(t.shape(), Shape::String) && t.get().go != "string");
    match value {
        BadValue::Text(text) if named => BadValue::json(&text.into()),
        other => other,
    }
}

/// An absent value prints as the zero value of its type: `""` for texts, `null` for pointers and collections.
fn zero_shown(at: &Node<'_>) -> BadValue {
    match (at.value(), at.ty().map(|t| t.shape())) {
        (Some(_), _) => internal_form::shown(at),
        (None, Some(Shape::String)) if !at.is_pointer() => "".into(),
        (None, _) => BadValue::Json("null".into()),
    }
}
