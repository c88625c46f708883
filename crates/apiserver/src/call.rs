//! One request for a resource, and what its handlers share.

use std::sync::Arc;

use http::HeaderMap;
use setpoint_api::{Status, fields};
use setpoint_schema::behaviour;
use setpoint_schema::{Context, Emptied, Kind};
use setpoint_store::{CommitError, Committed, Selection, Transaction};

use crate::audit::Noted;
use crate::conversion::Memo;
use crate::fence::Fence;
use crate::query::{ListOptions, Query};
use crate::registry::Served;
use crate::server::Inner;
use crate::user::User;

/// A request for a resource.
pub(crate) struct Call<'a> {
    pub(crate) server: &'a Inner,
    pub(crate) served: &'a Arc<Served>,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: Option<&'a str>,
    pub(crate) subresource: Option<&'a str>,
    /// Asked for under `/watch/`.
    pub(crate) watch_path: bool,
    pub(crate) query: Query<'a>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) user: &'a User,
    /// A part of this process asks, not somebody on the network.
    pub(crate) internal: bool,
    /// The term of a leader under which this is written.
    pub(crate) fence: Option<Fence<'a>>,
    /// What the user should know although it worked.
    pub(crate) warnings: Vec<String>,
    /// Lists and maps that the client gave empty.
    pub(crate) emptied: Vec<Emptied>,
    /// What webhooks and policies leave for the audit log.
    pub(crate) audit_annotations: Vec<(String, String)>,
    /// What else the audit log is told.
    pub(crate) noted: Noted,
    /// What became of the object in other versions, of a kind that a webhook converts.
    pub(crate) memo: Option<Arc<Memo>>,
}

/// The server itself, when it is the one who writes.
pub(crate) struct System {
    headers: HeaderMap,
    user: User,
}

impl Default for System {
    fn default() -> System {
        let user = User {
            name: "system:apiserver".to_owned(),
            groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
            ..User::default()
        };
        System { headers: HeaderMap::new(), user }
    }
}

impl<'a> Call<'a> {
    /// A write of the server's own: it goes the way of all others.
    pub(crate) fn of_system(
        server: &'a Inner,
        served: &'a Arc<Served>,
        system: &'a System,
        namespace: Option<&'a str>,
        name: Option<&'a str>,
        subresource: Option<&'a str>,
    ) -> Call<'a> {
        Call {
            server,
            served,
            namespace,
            name,
            subresource,
            watch_path: false,
            query: Query::default(),
            headers: &system.headers,
            user: &system.user,
            internal: true,
            fence: None,
            warnings: Vec::new(),
            emptied: Vec::new(),
            audit_annotations: Vec::new(),
            noted: Noted::default(),
            memo: served.converter().map(|_| Arc::default()),
        }
    }

    /// Commits a transaction of this request: within the term of its leader, if it named one.
    pub(crate) async fn commit(&self, transaction: Transaction) -> Result<Committed, CommitError> {
        let transaction = match self.fence {
            Some(fence) => fence.around(transaction),
            None => transaction,
        };
        self.server.store.commit(transaction).await
    }

    pub(crate) fn kind(&self) -> &'a Kind {
        &self.served.kind
    }

    /// The kind, for an answer that outlives the request.
    pub(crate) fn served_shared(&self) -> Arc<Served> {
        Arc::clone(self.served)
    }

    /// The object's name; there is one wherever this is called.
    pub(crate) fn object_name(&self) -> &'a str {
        self.name.unwrap_or_default()
    }

    /// What a kind may need to know of the request.
    pub(crate) fn context(&self, dry_run: bool) -> Context {
        let user = behaviour::User {
            name: self.user.name.clone(),
            uid: self.user.uid.clone(),
            groups: self.user.groups.clone(),
            extra: self.user.extra.iter().map(|(key, values)| (key.clone(), values.clone())).collect(),
        };
        Context { now: self.server.clock.seconds(), user, dry_run }
    }

    /// The objects that a list or watch is about.
    pub(crate) fn selection(&self, options: &ListOptions) -> Result<Selection, Box<Status>> {
        let bad = |message: String| Box::new(Status::bad_request(message));
        let labels = options.labels.clone();
        let fields = options.fields.transform(|name, value| self.selectable(name, value)).map_err(bad)?;
        let fields = match self.name {
            Some(name) => match fields.exact_match("metadata.name") {
                Some(other) if other != name => return Err(bad(mismatch(name, other))),
                _ => and_name(&fields, name).map_err(bad)?,
            },
            None => fields,
        };
        let selection = Selection::new(labels, fields);
        Ok(match self.served.custom {
            Some(_) => selection.reading(self.served_shared(), self.served.stored.clone()),
            None => selection,
        })
    }

    /// The field under the name that it is stored by, or the kind's own words for one it doesn't have.
    fn selectable(&self, name: &str, value: &str) -> Result<(String, String), String> {
        let kind = self.kind();
        let own = kind.behaviour.selectable();
        // Kinds without fields of their own take the namespace even where they have none.
        let is_plain = own.is_empty() && self.served.custom.is_none();
        let metadata = name == "metadata.name" || name == "metadata.namespace" && (kind.namespaced || is_plain);
        if metadata || own.iter().any(|field| field.name == name) {
            return Ok((self.served.stored_field(name), value.to_owned()));
        }
        Err(match (&*kind.group, &*kind.kind) {
            ("", "Pod") if name == "spec.host" => return Ok(("spec.nodeName".to_owned(), value.to_owned())),
            ("batch", "Job") => format!("field label \"{name}\" not supported for Job"),
            ("resource.k8s.io", "ResourceSlice") => {
                format!("field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {name}")
            }
            _ if is_plain => {
                format!("\"{name}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            }
            _ => format!("field label not supported: {name}"),
        })
    }
}

fn mismatch(name: &str, other: &str) -> String {
    format!("field metadata.name: Invalid value: \"{other}\": does not match the name in the path \"{name}\"")
}

fn and_name(selector: &fields::Selector, name: &str) -> Result<fields::Selector, String> {
    let escaped = fields::escape(name);
    let text = match selector.to_string() {
        text if text.is_empty() => format!("metadata.name={escaped}"),
        text => format!("{text},metadata.name={escaped}"),
    };
    fields::Selector::parse(&text).map_err(|error| error.to_string())
}
