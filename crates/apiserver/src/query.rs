//! The options in a request's query string, and what is wrong with them.

use std::borrow::Cow;

use setpoint_api::{FieldError, GroupKind, Path, Revision, Status, fields, labels};

/// Longest name of a field manager.
pub const FIELD_MANAGER_BYTES_MAX: usize = 128;

/// A query string taken apart.
#[derive(Debug, Default)]
pub struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    /// Takes a query string apart.
    pub fn parse(text: &'a str) -> Query<'a> {
        Query(form_urlencoded::parse(text.as_bytes()).collect())
    }

    /// The first value of a parameter; empty if it is not there.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// Whether the parameter is there.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(key, _)| key == name)
    }

    /// All values of a parameter.
    pub fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.to_string()).collect()
    }

    /// A flag as Kubernetes reads it: absent, `false` in any case and `0` are false, anything else is true.
    pub fn flag(&self, name: &str) -> bool {
        self.maybe_flag(name).unwrap_or(false)
    }

    /// A flag that may be absent.
    pub fn maybe_flag(&self, name: &str) -> Option<bool> {
        self.has(name).then(|| self.get(name) != "0" && !self.get(name).eq_ignore_ascii_case("false"))
    }

    /// A whole number. One that is there and empty is none.
    pub fn number(&self, name: &str) -> Result<Option<i64>, Box<Status>> {
        if !self.has(name) {
            return Ok(None);
        }
        parse_int(self.get(name)).map(Some).map_err(|message| Box::new(Status::bad_request(message)))
    }
}

fn parse_int(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("strconv.ParseInt: parsing {}: invalid syntax", setpoint_api::quote::quote(text)));
    }
    text.parse().map_err(|_| format!("strconv.ParseInt: parsing \"{text}\": value out of range"))
}

/// What to do with fields that a kind doesn't have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    /// Nothing.
    Ignore,
    /// Tell the user, and go on.
    Warn,
    /// Refuse.
    Strict,
}

/// Options that all writes have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// Answer as if, and store nothing.
    pub dry_run: bool,
    /// What to do with unknown fields.
    pub field_validation: FieldValidation,
    /// Who is said to make the change.
    pub field_manager: String,
    /// Take fields over from others (apply only).
    pub force: Option<bool>,
    /// The write is an apply: it says itself who owns what.
    pub applied: bool,
    /// What kind of options they are: `CreateOptions`, `UpdateOptions` or `PatchOptions`. Empty for a step within a request, about which
    /// nobody is asked again.
    pub kind: &'static str,
}

impl WriteOptions {
    /// Reads and checks them; `kind` is `CreateOptions`, `UpdateOptions` or `PatchOptions`.
    pub fn read(query: &Query<'_>, kind: &'static str) -> Result<WriteOptions, Box<Status>> {
        let manager = query.get("fieldManager");
        Self::read_besides(query, kind, Vec::new(), manager)
    }

    /// Those of a patch, which can't be forced.
    pub fn of_patch(query: &Query<'_>) -> Result<WriteOptions, Box<Status>> {
        let forced = query.has("force");
        let error = FieldError::forbidden(&Path::root("force"), "may not be specified for non-apply patch");
        Self::read_besides(
            query,
            "PatchOptions",
            forced.then_some(error).into_iter().collect(),
            query.get("fieldManager"),
        )
    }

    /// Those of an apply, which has to say who applies.
    pub fn of_apply(query: &Query<'_>) -> Result<WriteOptions, Box<Status>> {
        let manager = query.get("fieldManager");
        let error = FieldError::required(&Path::root("fieldManager"), "is required for apply patch");
        let errors = manager.is_empty().then_some(error).into_iter().collect();
        Ok(WriteOptions { applied: true, ..Self::read_besides(query, "PatchOptions", errors, manager)? })
    }

    /// Reads and checks them, with what else is wrong.
    fn read_besides(
        query: &Query<'_>,
        kind: &'static str,
        mut errors: Vec<FieldError>,
        manager: &str,
    ) -> Result<WriteOptions, Box<Status>> {
        check_field_manager(manager, &mut errors);
        check_dry_run(&query.all("dryRun"), &mut errors);
        let field_validation = read_field_validation(query.get("fieldValidation"), &mut errors);
        let options = WriteOptions {
            dry_run: query.all("dryRun").iter().any(|value| value == "All"),
            field_validation,
            field_manager: manager.to_owned(),
            force: query.maybe_flag("force"),
            applied: false,
            kind,
        };
        refuse(kind, errors)?;
        Ok(options)
    }

    /// The options of the server's own writes.
    pub(crate) fn of_system() -> WriteOptions {
        WriteOptions {
            dry_run: false,
            field_validation: FieldValidation::Ignore,
            field_manager: "kube-apiserver".to_owned(),
            force: None,
            applied: false,
            kind: "UpdateOptions",
        }
    }
}

/// The refusal of options, if there is something wrong with them.
pub fn refuse(kind: &str, errors: Vec<FieldError>) -> Result<(), Box<Status>> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(Box::new(Status::invalid(&GroupKind::new("meta.k8s.io", kind), "", &errors)))
}

fn check_field_manager(manager: &str, errors: &mut Vec<FieldError>) {
    let path = Path::root("fieldManager");
    if manager.len() > FIELD_MANAGER_BYTES_MAX {
        errors.push(FieldError::too_long(&path, FIELD_MANAGER_BYTES_MAX));
    }
    if let Some((at, _)) = manager.char_indices().find(|(_, c)| !setpoint_api::quote::is_printable(*c)) {
        let detail =
            format!("invalid character U+{:04X} (at position {at})", manager[at..].chars().next().map_or(0, u32::from));
        errors.push(FieldError::invalid(&path, manager, detail));
    }
}

pub(crate) fn check_dry_run(values: &[String], errors: &mut Vec<FieldError>) {
    if values.iter().any(|value| value != "All") {
        let listed = serde_json::Value::from(values.to_vec());
        errors.push(FieldError::not_supported(&Path::root("dryRun"), setpoint_api::BadValue::from(&listed), &["All"]));
    }
}

fn read_field_validation(text: &str, errors: &mut Vec<FieldError>) -> FieldValidation {
    match text {
        "" | "Warn" => FieldValidation::Warn,
        "Ignore" => FieldValidation::Ignore,
        "Strict" => FieldValidation::Strict,
        other => {
            let allowed = ["", "Ignore", "Strict", "Warn"];
            errors.push(FieldError::not_supported(&Path::root("fieldValidation"), other, &allowed));
            FieldValidation::Warn
        }
    }
}

/// How a resourceVersion in a list is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// Not said.
    Unset,
    /// Exactly that state.
    Exact,
    /// That state or a newer one.
    NotOlderThan,
}

/// Options of lists and watches.
#[derive(Clone, Debug)]
pub struct ListOptions {
    /// Which labels.
    pub labels: labels::Selector,
    /// Which fields, under the names that the client gave them.
    pub fields: fields::Selector,
    /// Follow changes.
    pub watch: bool,
    /// Send bookmarks.
    pub bookmarks: bool,
    /// Begin a watch with what is there.
    pub send_initial_events: Option<bool>,
    /// The resourceVersion as text.
    pub resource_version: String,
    /// How it is meant.
    pub version_match: Match,
    /// At most so many objects.
    pub limit: Option<usize>,
    /// Where the page before ended.
    pub continue_token: String,
    /// End the watch after so many seconds.
    pub timeout_seconds: Option<u64>,
}

impl ListOptions {
    /// Reads and checks them: what can't be read is told before what doesn't fit together.
    pub fn read(query: &Query<'_>, watch_path: bool) -> Result<ListOptions, Box<Status>> {
        let bad = |message: String| Box::new(Status::bad_request(message));
        let watch = query.flag("watch") || watch_path;
        let send_initial_events = query.maybe_flag("sendInitialEvents");
        let timeout = query.number("timeoutSeconds")?;
        let limit = query.number("limit")?;
        let labels = labels::Selector::parse(query.get("labelSelector")).map_err(|error| bad(error.to_string()))?;
        let fields = fields::Selector::parse(query.get("fieldSelector")).map_err(|error| bad(error.to_string()))?;
        let version_match = check_versions(query, watch, send_initial_events)?;
        Ok(ListOptions {
            labels,
            fields,
            watch,
            bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events,
            resource_version: query.get("resourceVersion").to_owned(),
            version_match,
            limit: limit.filter(|limit| *limit > 0).and_then(|limit| usize::try_from(limit).ok()),
            continue_token: query.get("continue").to_owned(),
            timeout_seconds: timeout.filter(|seconds| *seconds > 0).and_then(|seconds| u64::try_from(seconds).ok()),
        })
    }

    /// The resourceVersion, if it names one that is not "any".
    pub fn revision(&self) -> Result<Option<Revision>, Box<Status>> {
        match &*self.resource_version {
            "" | "0" => Ok(None),
            text => parse_revision(text).map(Some),
        }
    }
}

/// A resourceVersion in a query.
pub fn parse_revision(text: &str) -> Result<Revision, Box<Status>> {
    text.parse().map_err(|_| {
        let why = format!("strconv.ParseUint: parsing {}: invalid syntax", setpoint_api::quote::quote(text));
        let error = FieldError::invalid(&Path::root("resourceVersion"), text, why);
        Box::new(Status::bad_request(error.to_string()))
    })
}

fn check_versions(query: &Query<'_>, watch: bool, send_initial_events: Option<bool>) -> Result<Match, Box<Status>> {
    let path = Path::root("resourceVersionMatch");
    let forbidden = |detail: &str| FieldError::forbidden(&path, detail);
    let text = query.get("resourceVersionMatch");
    let has_version = query.has("resourceVersion") && !query.get("resourceVersion").is_empty();
    let mut errors = Vec::new();
    if watch {
        check_watch_versions(query, text, send_initial_events, &mut errors);
        refuse("ListOptions", errors)?;
        return Ok(if text == "NotOlderThan" { Match::NotOlderThan } else { Match::Unset });
    }
    if !text.is_empty() && !has_version {
        errors.push(forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"));
    }
    if !text.is_empty() && !query.get("continue").is_empty() {
        errors.push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
    }
    let version_match = match text {
        "" => Match::Unset,
        "Exact" => Match::Exact,
        "NotOlderThan" => Match::NotOlderThan,
        other => {
            errors.push(FieldError::not_supported(&path, other, &["Exact", "NotOlderThan", ""]));
            Match::Unset
        }
    };
    if version_match == Match::Exact && query.get("resourceVersion") == "0" {
        errors.push(forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
    }
    if send_initial_events.is_some() {
        errors.push(FieldError::forbidden(&Path::root("sendInitialEvents"), "sendInitialEvents is forbidden for list"));
    }
    refuse("ListOptions", errors)?;
    Ok(version_match)
}

fn check_watch_versions(query: &Query<'_>, text: &str, initial: Option<bool>, errors: &mut Vec<FieldError>) {
    let path = Path::root("resourceVersionMatch");
    if initial.is_some() && text != "NotOlderThan" {
        let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.push(FieldError::forbidden(&path, detail));
    }
    if initial.is_none() && !text.is_empty() {
        let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        errors.push(FieldError::forbidden(&path, detail));
    }
    if !text.is_empty() && text != "NotOlderThan" {
        errors.push(FieldError::not_supported(&path, text, &["NotOlderThan"]));
    }
    // A watch from any version is one with initial events, which Kubernetes fills in, with how the version is meant.
    let from_any = initial.is_none() && matches!(query.get("resourceVersion"), "" | "0");
    if (from_any || !text.is_empty()) && !query.get("continue").is_empty() {
        errors.push(FieldError::forbidden(&path, "resourceVersionMatch is forbidden when continue is provided"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list_fails(text: &str, expected: &str) {
        let refused = ListOptions::read(&Query::parse(text), false).unwrap_err();
        assert!(refused.message.contains(expected), "{text}: {}", refused.message);
    }

    #[test]
    fn what_cannot_be_read_is_told_before_what_does_not_fit() {
        let empty = "strconv.ParseInt: parsing \"\": invalid syntax";
        list_fails("limit=&labelSelector=%3D", empty);
        list_fails("limit=x&timeoutSeconds=", empty);
        list_fails("labelSelector=a%2C&sendInitialEvents=true", "found '', expected: identifier after ','");
        list_fails("fieldSelector=a&resourceVersionMatch=Exact", "invalid selector: 'a'");
    }

    #[test]
    fn what_does_not_fit_is_told_in_order() {
        list_fails(
            "sendInitialEvents=false&resourceVersionMatch=Exact",
            "[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided, \
             sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list]",
        );
        list_fails(
            "watch=1&resourceVersionMatch=Exact&sendInitialEvents=1",
            "[resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, \
             resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"]",
        );
    }

    #[test]
    fn flags_are_false_in_any_case() {
        let query = Query::parse("a=False&b=0&c=&d=no");
        let flags = ["a", "b", "c", "d", "e"].map(|name| query.maybe_flag(name));
        assert_eq!(flags, [Some(false), Some(false), Some(true), Some(true), None]);
    }
}
