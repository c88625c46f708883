//! Values against schemas, with the words and in the order of upstream's validator.
//!
//! Of several schemas that a value may fit, that with the most successful checks is the one whose errors are told, so
//! successful checks are counted exactly as upstream counts them.

use serde_json::{Map, Number, Value};
use setpoint_api::quote::quote;
use setpoint_api::{BadValue, FieldError, Path};

use super::correlation::Correlation;
use super::format;
use super::part::Part;
use super::rules::{Combinations, Nested, Numbers, Rules, Texts};
use super::tree::JsonType;

/// The largest number that JSON can write with a fraction and that still counts as whole, as upstream.
const WHOLE_FLOAT_MAX: f64 = 9_007_199_254_740_991.0;

/// What is wrong with a value under a schema. Paths in messages start at the value, those of fields at `field`.
pub(super) fn check(value: &Value, part: Part<'_>, before: Option<Correlation<'_>>, field: &str) -> Vec<FieldError> {
    let mut checker = Checker { path: String::new() };
    let outcome = checker.ratcheted(value, part, before);
    outcome.mistakes.into_iter().map(|mistake| mistake.into_error(field)).collect()
}

/// What was found: mistakes, and how many checks succeeded.
#[derive(Debug, Default)]
struct Outcome {
    mistakes: Vec<Mistake>,
    successes: usize,
}

#[derive(Debug)]
struct Mistake {
    /// Path of the value; None for mistakes that belong to no field.
    path: Option<String>,
    message: String,
    what: What,
}

#[derive(Debug)]
enum What {
    Required,
    NotSupported(BadValue, Vec<String>),
    TooLong(i64),
    TooMany(usize, i64),
    Type(BadValue),
    Invalid(BadValue),
}

impl Outcome {
    fn one(mistake: Mistake) -> Self {
        Self { mistakes: vec![mistake], successes: 0 }
    }

    /// The same message is told once.
    fn push(&mut self, mistake: Mistake) {
        if !self.mistakes.iter().any(|known| known.message == mistake.message) {
            self.mistakes.push(mistake);
        }
    }

    fn merge(&mut self, other: Outcome) {
        self.successes += other.successes;
        other.mistakes.into_iter().for_each(|mistake| self.push(mistake));
    }

    fn is_valid(&self) -> bool {
        self.mistakes.is_empty()
    }
}

impl Mistake {
    fn into_error(self, field: &str) -> FieldError {
        let path = match (self.path.as_deref().map(|path| path.trim_start_matches('.')), field) {
            (None | Some(""), "") => "<nil>".to_owned(),
            (None | Some(""), field) => field.to_owned(),
            (Some(path), "") => path.to_owned(),
            (Some(path), field) => format!("{field}.{path}"),
        };
        let nil = Path::nil();
        let count = |limit: i64| usize::try_from(limit).unwrap_or(0);
        let error = match self.what {
            What::Required => FieldError::required(&nil, ""),
            What::NotSupported(value, allowed) => FieldError::not_supported(&nil, value, &allowed),
            What::TooLong(max) => FieldError::too_long(&nil, count(max)),
            What::TooMany(actual, max) => FieldError::too_many(&nil, Some(actual), count(max)),
            What::Type(value) => FieldError::type_invalid(&nil, value, self.message),
            What::Invalid(value) => FieldError::invalid(&nil, value, self.message),
        };
        error.at(path)
    }
}

struct Checker {
    path: String,
}

impl Checker {
    /// Checks a value; if it is as it was before, nothing is wrong with it.
    fn ratcheted(&mut self, value: &Value, part: Part<'_>, before: Option<Correlation<'_>>) -> Outcome {
        let mut outcome = self.value(value, part, before);
        if !outcome.is_valid() && before.is_some_and(Correlation::is_unchanged) {
            outcome.mistakes.clear();
        }
        outcome
    }

    fn value(&mut self, value: &Value, part: Part<'_>, before: Option<Correlation<'_>>) -> Outcome {
        let mut outcome = Outcome::default();
        let rules = part.rules();
        let format = rules.and_then(|rules| rules.format.as_deref());
        if value.is_null() {
            outcome.merge(self.null(part));
            self.allowed(value, rules, &mut outcome);
            return outcome;
        }
        if part.ty() != JsonType::Any || format.is_some() {
            outcome.merge(self.ty(value, part.ty(), format));
            outcome.successes += 1;
        }
        match rules.and_then(|rules| rules.combinations.as_deref()) {
            Some(combinations) => outcome.merge(self.combinations(value, combinations, before)),
            None => outcome.successes += 1,
        }
        outcome.successes += 1;
        match value {
            Value::String(text) => self.text(text, rules, format, &mut outcome),
            Value::Number(number) => {
                let numbers = rules.and_then(|rules| rules.numbers.as_deref());
                self.number(number, part.ty(), format, numbers, &mut outcome);
                outcome.successes += 2;
            }
            Value::Array(items) => {
                self.items(items, part, before, &mut outcome);
                outcome.successes += 2;
            }
            Value::Null | Value::Bool(_) | Value::Object(_) => {}
        }
        self.allowed(value, rules, &mut outcome);
        outcome.successes += 1;
        if let Value::Object(fields) = value {
            self.object(fields, part, before, &mut outcome);
            outcome.successes += 1;
        }
        outcome.successes += 1;
        outcome
    }

    fn null(&self, part: Part<'_>) -> Outcome {
        if part.ty() != JsonType::Any && !part.nullable() {
            return Outcome::one(self.wrong_type(part.ty().name(), "null"));
        }
        Outcome { mistakes: Vec::new(), successes: 1 }
    }

    fn ty(&self, value: &Value, ty: JsonType, format: Option<&str>) -> Outcome {
        let (found, found_format) = found_type(value);
        let is_whole = |number: f64| number.fract() == 0.0 && number.abs() <= WHOLE_FLOAT_MAX;
        let whole_float = value.is_f64() && value.as_f64().is_some_and(is_whole);
        let fits = match ty {
            JsonType::Any => false,
            JsonType::IntOrString => found == "integer" || found == "string" || whole_float,
            JsonType::Integer => found == "integer" || whole_float,
            JsonType::Number => found == "integer" || found == "number",
            other => other.name() == found,
        };
        let listed = matches!(value, Value::String(_) | Value::Array(_));
        let numeric = matches!(ty, JsonType::Integer | JsonType::Number | JsonType::IntOrString);
        match format {
            Some(format) if !listed && !fits && found_format != format => {
                return Outcome::one(self.wrong_type(format, found_format));
            }
            Some(_) if listed && !numeric => {}
            _ if !fits => return Outcome::one(self.wrong_type(ty.name(), found)),
            _ => {}
        }
        Outcome { mistakes: Vec::new(), successes: 1 }
    }

    fn text(&self, text: &str, rules: Option<&Rules>, format: Option<&str>, outcome: &mut Outcome) {
        outcome.successes += 1;
        if let Some(texts) = rules.and_then(|rules| rules.texts.as_deref())
            && let Some(mistake) = self.text_bounds(text, texts)
        {
            outcome.push(mistake);
        }
        let Some(format) = format.filter(|format| format::is_known(format)) else { return };
        outcome.successes += 1;
        if !format::allows(format, text) {
            let message = format!("{} in body must be of type {format}: {}", self.path, quote(text));
            outcome.push(self.mistake(message, What::Type(text.into())));
        }
    }

    fn text_bounds(&self, text: &str, texts: &Texts) -> Option<Mistake> {
        let length = || i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        if let Some(max) = texts.max.filter(|max| length() > *max) {
            return Some(self.mistake(self.said(&format!("should be at most {max} chars long")), What::TooLong(max)));
        }
        if let Some(min) = texts.min.filter(|min| length() < *min) {
            let message = self.said(&format!("should be at least {min} chars long"));
            return Some(self.mistake(message, What::Invalid(text.into())));
        }
        let pattern = texts.pattern.as_ref().filter(|pattern| !pattern.matches(text))?;
        let message = self.said(&format!("should match '{}'", pattern.text));
        Some(self.mistake(message, What::Invalid(text.into())))
    }

    fn number(
        &self,
        number: &Number,
        ty: JsonType,
        format: Option<&str>,
        numbers: Option<&Numbers>,
        outcome: &mut Outcome,
    ) {
        let range = Range { ty, format };
        let mut boundary = |prefix: &str, good: bool| {
            if !good {
                let message = range.message(prefix, &self.path);
                outcome.push(Mistake { path: None, message, what: What::Invalid("".into()) });
            }
        };
        boundary("Checked", range.holds_number(number));
        let Some(numbers) = numbers else { return };
        for (prefix, bound) in [
            ("MultipleOf", numbers.multiple_of),
            ("Minimum boundary", numbers.minimum),
            ("Maximum boundary", numbers.maximum),
        ] {
            boundary(prefix, bound.is_none_or(|bound| range.holds(bound)));
        }
        let value = number.as_f64().unwrap_or(0.0);
        // Bounds of whole numbers are cut to whole numbers, and shown so.
        let bound = |bound: f64| match number.as_i64() {
            Some(_) if range.holds(bound) => BadValue::Int(bound as i64),
            _ => BadValue::Float(bound),
        };
        let cut = |bound: f64| if number.is_i64() && range.holds(bound) { bound.trunc() } else { bound };
        let mut complain = |what: String| {
            outcome.push(self.mistake(self.said(&what), What::Invalid(BadValue::from(&Value::Number(number.clone())))));
        };
        if let Some(factor) = numbers.multiple_of
            && !is_multiple(number, cut(factor))
        {
            complain(format!("should be a multiple of {}", bound(factor)));
        }
        if let Some(min) = numbers.minimum {
            match numbers.exclusive_minimum {
                true if value <= cut(min) => complain(format!("should be greater than {}", bound(min))),
                false if value < cut(min) => complain(format!("should be greater than or equal to {}", bound(min))),
                _ => {}
            }
        }
        if let Some(max) = numbers.maximum {
            match numbers.exclusive_maximum {
                true if value >= cut(max) => complain(format!("should be less than {}", bound(max))),
                false if value > cut(max) => complain(format!("should be less than or equal to {}", bound(max))),
                _ => {}
            }
        }
    }

    fn items(&mut self, items: &[Value], part: Part<'_>, before: Option<Correlation<'_>>, outcome: &mut Outcome) {
        if let Some(inner) = part.item() {
            let length = self.path.len();
            for (index, item) in items.iter().enumerate() {
                self.path.push_str(&format!("[{index}]"));
                let found = self.ratcheted(item, inner, before.and_then(|before| before.index(index)));
                outcome.merge(found);
                self.path.truncate(length);
            }
        }
        let Some(counts) = part.rules().and_then(|rules| rules.items.as_deref()) else { return };
        let size = i64::try_from(items.len()).unwrap_or(i64::MAX);
        if let Some(min) = counts.min.filter(|min| size < *min) {
            let message = self.said(&format!("should have at least {min} items"));
            outcome.push(self.mistake(message, What::Invalid(size.into())));
        }
        if let Some(max) = counts.max.filter(|max| size > *max) {
            let message = self.said(&format!("should have at most {max} items"));
            outcome.push(self.mistake(message, What::TooMany(items.len(), max)));
        }
        if counts.unique && items.iter().enumerate().any(|(index, item)| items[..index].contains(item)) {
            outcome.push(self.mistake(self.said("shouldn't contain duplicates"), What::Invalid("".into())));
        }
    }

    fn object(
        &mut self,
        fields: &Map<String, Value>,
        part: Part<'_>,
        before: Option<Correlation<'_>>,
        outcome: &mut Outcome,
    ) {
        let rules = part.rules();
        if let Some(counts) = rules.and_then(|rules| rules.fields.as_deref()) {
            let size = i64::try_from(fields.len()).unwrap_or(i64::MAX);
            if let Some(min) = counts.min.filter(|min| size < *min) {
                let message = self.said(&format!("should have at least {min} properties"));
                outcome.push(self.mistake(message, What::Invalid(size.into())));
            }
            if let Some(max) = counts.max.filter(|max| size > *max) {
                let message = self.said(&format!("should have at most {max} properties"));
                outcome.push(self.mistake(message, What::TooMany(fields.len(), max)));
            }
        }
        let length = self.path.len();
        let additional = part.additional();
        for (name, value) in fields {
            let Some(inner) = part.property(name).or(additional) else { continue };
            let is_type = length == 0 && matches!(name.as_str(), "apiVersion" | "kind");
            let inside = before.filter(|_| !is_type).and_then(|before| before.key(name));
            if length > 0 || part.property(name).is_none() {
                self.path.push('.');
            }
            self.path.push_str(name);
            let found = self.ratcheted(value, inner, inside);
            outcome.merge(found);
            self.path.truncate(length);
        }
        for name in rules.map_or(&[] as &[Box<str>], |rules| &rules.required) {
            if !fields.contains_key(&**name) {
                let path = format!("{}.{name}", self.path);
                let message = format!("{path} in body is required");
                outcome.push(Mistake { path: Some(path), message, what: What::Required });
            }
        }
    }

    fn allowed(&self, value: &Value, rules: Option<&Rules>, outcome: &mut Outcome) {
        let Some(rules) = rules.filter(|rules| !rules.allowed.is_empty()) else { return };
        let same = |one: &Value| match (one, value) {
            (Value::Null, _) | (_, Value::Null) => false,
            (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
            (one, value) => one == value,
        };
        if rules.allowed.iter().any(same) {
            return;
        }
        let shown = |one: &Value| one.as_str().map_or_else(|| one.to_string(), str::to_owned);
        let allowed: Vec<String> = rules.allowed.iter().map(shown).collect();
        let message = self.said(&format!("should be one of [{}]", allowed.join(" ")));
        outcome.push(self.mistake(message, What::NotSupported(BadValue::from(value), allowed)));
    }

    fn combinations(&mut self, value: &Value, schemas: &Combinations, before: Option<Correlation<'_>>) -> Outcome {
        let mut main = Outcome::default();
        if !schemas.any_of.is_empty() {
            self.any_of(value, &schemas.any_of, before, &mut main);
        }
        if !schemas.one_of.is_empty() {
            self.one_of(value, &schemas.one_of, before, &mut main);
        }
        if !schemas.all_of.is_empty() {
            let mut valid = 0;
            for schema in &schemas.all_of {
                let found = self.value(value, Part::Nested(schema), before);
                valid += usize::from(found.is_valid());
                main.merge(found);
            }
            if valid != schemas.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                main.push(self.composite(&format!("must validate all the schemas (allOf){none}")));
            }
        }
        if let Some(not) = &schemas.not
            && self.value(value, Part::Nested(not), before).is_valid()
        {
            main.push(self.composite("must not validate the schema (not)"));
        }
        main.successes += 1;
        main
    }

    fn any_of(&mut self, value: &Value, schemas: &[Nested], before: Option<Correlation<'_>>, main: &mut Outcome) {
        let mut best: Option<Outcome> = None;
        for schema in schemas {
            let found = self.value(value, Part::Nested(schema), before);
            if found.is_valid() {
                return main.merge(found);
            }
            if best.as_ref().is_none_or(|best| found.successes > best.successes) {
                best = Some(found);
            }
        }
        main.push(self.composite("must validate at least one schema (anyOf)"));
        best.into_iter().for_each(|best| main.merge(best));
    }

    fn one_of(&mut self, value: &Value, schemas: &[Nested], before: Option<Correlation<'_>>, main: &mut Outcome) {
        let (mut best, mut first, mut valid): (Option<Outcome>, Option<Outcome>, usize) = (None, None, 0);
        for schema in schemas {
            let found = self.value(value, Part::Nested(schema), before);
            if found.is_valid() {
                valid += 1;
                best = None;
                first.get_or_insert(found);
            } else if valid == 0 && best.as_ref().is_none_or(|best| found.successes > best.successes) {
                best = Some(found);
            }
        }
        if valid == 1 {
            return first.into_iter().for_each(|first| main.merge(first));
        }
        let found =
            if valid == 0 { "Found none valid".to_owned() } else { format!("Found {valid} valid alternatives") };
        main.push(self.composite(&format!("must validate one and only one schema (oneOf). {found}")));
        best.into_iter().for_each(|best| main.merge(best));
    }

    fn said(&self, what: &str) -> String {
        format!("{} in body {what}", self.path)
    }

    fn mistake(&self, message: String, what: What) -> Mistake {
        Mistake { path: Some(self.path.clone()), message, what }
    }

    fn wrong_type(&self, wanted: &str, found: &str) -> Mistake {
        let message = format!("{} in body must be of type {wanted}: {}", self.path, quote(found));
        self.mistake(message, What::Type(found.into()))
    }

    fn composite(&self, what: &str) -> Mistake {
        Mistake { path: None, message: format!("{} {what}", quote(&self.path)), what: What::Invalid("".into()) }
    }
}

/// The type of a value and its format, as upstream tells them from Go values.
fn found_type(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_f64() => ("number", "float64"),
        Value::Number(_) => ("integer", "int64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

/// Which numbers a type and format can hold.
struct Range<'a> {
    ty: JsonType,
    format: Option<&'a str>,
}

impl Range<'_> {
    fn holds_number(&self, number: &Number) -> bool {
        match (self.ty, number.as_i64()) {
            (JsonType::Integer, Some(whole)) => self.format != Some("int32") || i32::try_from(whole).is_ok(),
            _ => number.as_f64().is_some_and(|value| self.holds(value)),
        }
    }

    fn holds(&self, value: f64) -> bool {
        match (self.ty, self.format) {
            (JsonType::Integer, Some("int32")) => {
                value.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&value)
            }
            (JsonType::Integer, _) => value.fract() == 0.0 && value.abs() < 9_223_372_036_854_775_808.0,
            (JsonType::Number, Some("float")) => value.abs() <= f64::from(f32::MAX),
            _ => true,
        }
    }

    fn message(&self, prefix: &str, path: &str) -> String {
        let ty = if matches!(self.ty, JsonType::Integer | JsonType::Number) { self.ty.name() } else { "" };
        match self.format.filter(|_| !ty.is_empty()) {
            Some(format) => format!("{prefix} value must be of type {ty} with format {format} in {path}"),
            None => format!("{prefix} value must be of type {ty} (default format) in {path}"),
        }
    }
}

fn is_multiple(number: &Number, factor: f64) -> bool {
    if factor <= 0.0 {
        return false;
    }
    match number.as_i64() {
        Some(whole) if factor.fract() == 0.0 && factor < 9e18 => whole % (factor as i64) == 0,
        _ => {
            let value = number.as_f64().unwrap_or(0.0);
            let quotient = if factor < 1.0 { 1.0 / factor * value } else { value / factor };
            is_nearly_whole(quotient)
        }
    }
}

/// Floats are taken for whole numbers if they differ by less than rounding does.
fn is_nearly_whole(value: f64) -> bool {
    if !value.is_finite() || value.abs() > 9_007_199_254_740_991.0 {
        return false;
    }
    let whole = value.trunc();
    let difference = (value - whole).abs();
    value == whole || difference < 1e-9 * value.abs().max(whole.abs()).min(1.0)
}
