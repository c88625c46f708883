//! Everything at one revision, for as long as the reader wants it.

use std::collections::BTreeMap;
use std::sync::Arc;

use setpoint_api::Revision;
use setpoint_api::kind::GroupResource;

use crate::head::Head;
use crate::key::{Key, path_of};
use crate::object::Object;
use crate::selection::Selection;
use crate::table::{Entry, Table};

/// The state at one revision. Cloning is O(1); reading needs no lock.
#[derive(Clone)]
pub struct Snapshot(Arc<Head>);

/// What to list.
#[derive(Clone, Debug)]
pub struct Query<'a> {
    /// The resource.
    pub resource: &'a GroupResource,
    /// One namespace, or all.
    pub namespace: Option<&'a str>,
    /// Which objects.
    pub selection: &'a Selection,
    /// Begin behind this path: [`Page::next`] of the page before.
    pub after: Option<&'a str>,
    /// At most so many objects.
    pub limit: Option<usize>,
}

/// Objects in the order of their keys.
#[derive(Debug, Default)]
pub struct Page {
    /// The objects.
    pub items: Vec<Arc<Object>>,
    /// Where the next page begins, if there may be one: as in Kubernetes it can turn out empty, when what follows is not
    /// selected.
    pub next: Option<Arc<str>>,
}

/// The objects of one resource at some moment. Equal marks are of the same state; holding one keeps those objects alive, but
/// nothing else.
#[derive(Clone, Default)]
pub struct Mark(Table);

impl PartialEq for Mark {
    fn eq(&self, other: &Mark) -> bool {
        self.0.is_same(&other.0)
    }
}

impl Snapshot {
    pub(crate) fn new(head: Head) -> Snapshot {
        Snapshot(Arc::new(head))
    }

    pub(crate) fn head(&self) -> &Head {
        &self.0
    }

    /// The revision of the newest change in it.
    pub fn revision(&self) -> Revision {
        self.0.revision
    }

    /// One object.
    pub fn get(&self, resource: &GroupResource, namespace: Option<&str>, name: &str) -> Option<Arc<Object>> {
        self.0.tables.table(resource)?.get(&path_of(namespace, name)).cloned()
    }

    /// Selected objects in order, up to the limit.
    pub fn list(&self, query: &Query<'_>) -> Page {
        let Some(table) = self.0.tables.table(query.resource) else { return Page::default() };
        let limit = query.limit.unwrap_or(usize::MAX);
        let everything = query.selection.is_everything();
        let mut items = Vec::new();
        let mut last: Option<&Arc<str>> = None;
        for (path, entry) in table.scan(query.namespace, query.after) {
            if items.len() == limit {
                return Page { items, next: last.cloned() };
            }
            if !everything && !query.selection.matches_entry(path, entry) {
                continue;
            }
            items.push(Arc::clone(&entry.object));
            last = Some(path);
        }
        Page { items, next: None }
    }

    /// How many objects there are in a namespace, or in all.
    pub fn count(&self, resource: &GroupResource, namespace: Option<&str>) -> usize {
        let Some(table) = self.0.tables.table(resource) else { return 0 };
        namespace.map_or(table.len(), |namespace| table.len_in(namespace))
    }

    /// A mark of a resource's objects, to find out later whether any was changed since. Costs O(1).
    pub fn mark(&self, resource: &GroupResource) -> Mark {
        Mark(self.0.tables.table(resource).cloned().unwrap_or_default())
    }

    /// Every object with its key, in the order in which they were last changed.
    pub fn in_order(&self) -> Vec<(Key, Arc<Object>)> {
        let tables = self.0.tables.iter();
        let of_table = |(resource, table): (&GroupResource, &'_ Table)| {
            let entry = |(path, entry): (&Arc<str>, &Entry)| {
                (Key::from_path(resource.clone(), Arc::clone(path)), Arc::clone(&entry.object))
            };
            table.scan(None, None).map(entry).collect::<Vec<_>>()
        };
        let mut objects: Vec<_> = tables.flat_map(of_table).collect();
        objects.sort_by(|(key, object), (other, another)| (object.revision(), key).cmp(&(another.revision(), other)));
        objects
    }

    /// How many objects each resource has.
    pub fn counts(&self) -> BTreeMap<GroupResource, usize> {
        self.0.tables.counts()
    }

    /// Bytes of memory behind all objects.
    pub fn memory(&self) -> usize {
        self.0.tables.memory()
    }
}
