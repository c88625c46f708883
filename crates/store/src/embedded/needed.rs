//! What of a log a start has to read: versions that were replaced, and that no window reaches back to, are passed over.
//!
//! A log of pods has each of them three times or more, and reading a version costs much more than to pass over it. A first look goes
//! over the log without opening any object.

use std::collections::HashMap;

use setpoint_api::Revision;
use setpoint_api::kind::GroupResource;

use super::record::{Content, GroupReader, Record, Unread};
use crate::window::{Event, WindowBounds};

/// Which changes of a log are needed, in their order.
#[derive(Default)]
pub(crate) struct Needed {
    changes: Vec<bool>,
    next: usize,
    floors: Vec<(GroupResource, Revision)>,
}

impl Needed {
    /// Whether the next change is; what nothing is known of is.
    pub(crate) fn next(&mut self) -> bool {
        self.next += 1;
        self.changes.get(self.next - 1).copied().unwrap_or(true)
    }

    /// Up to which revisions something may be missing.
    pub(crate) fn floors(&self) -> impl Iterator<Item = &(GroupResource, Revision)> {
        self.floors.iter()
    }
}

/// Which objects changed when.
#[derive(Default)]
pub(crate) struct Outline {
    tables: Vec<Table>,
    count: usize,
}

/// The changes of one resource.
struct Table {
    resource: GroupResource,
    /// Objects by their paths, numbered.
    numbers: HashMap<Box<str>, usize>,
    /// How large the newest version of each is, or 0 if that isn't known.
    sizes: Vec<usize>,
    changes: Vec<Noted>,
}

struct Noted {
    /// Its place among all changes.
    at: usize,
    object: usize,
    revision: Revision,
    /// How large the version is at least that it replaces.
    replaced: usize,
}

impl Outline {
    /// Notes the changes of the next group.
    pub(crate) fn add(&mut self, group: &GroupReader<'_>) -> Result<(), Unread> {
        group.each(|revision, record| {
            let at = self.count;
            self.count += 1;
            self.table(&record).note(at, revision, &record);
            Ok(())
        })
    }

    fn table(&mut self, record: &Record<'_>) -> &mut Table {
        let is_it =
            |table: &Table| *table.resource.resource == *record.resource && *table.resource.group == *record.group;
        let at = self.tables.iter().position(is_it).unwrap_or_else(|| {
            self.tables.push(Table {
                resource: GroupResource::new(record.group, record.resource),
                numbers: HashMap::new(),
                sizes: Vec::new(),
                changes: Vec::new(),
            });
            self.tables.len() - 1
        });
        &mut self.tables[at]
    }

    /// What is needed of it for windows of this size.
    pub(crate) fn needed(self, bounds: WindowBounds) -> Needed {
        let mut needed = Needed { changes: vec![true; self.count], ..Needed::default() };
        for table in self.tables {
            let Some(floor) = table.floor(bounds) else { continue };
            // The newest version of each object before the window is the one that its first change there replaces.
            let mut is_known = vec![false; table.sizes.len()];
            for change in table.changes.iter().rev().filter(|change| change.revision <= floor) {
                needed.changes[change.at] = !std::mem::replace(&mut is_known[change.object], true);
            }
            needed.floors.push((table.resource, floor));
        }
        needed
    }
}

impl Table {
    fn note(&mut self, at: usize, revision: Revision, record: &Record<'_>) {
        let object = match self.numbers.get(record.path) {
            Some(number) => *number,
            None => {
                self.numbers.insert(record.path.into(), self.sizes.len());
                self.sizes.push(0);
                self.sizes.len() - 1
            }
        };
        let size = match record.content {
            Content::Plain(json) => json.len(),
            Content::Nothing | Content::Sealed(_) => 0,
        };
        let replaced = std::mem::replace(&mut self.sizes[object], size);
        self.changes.push(Noted { at, object, revision, replaced });
    }

    /// The newest revision that can't be in the window any more, however little each event takes.
    fn floor(&self, bounds: WindowBounds) -> Option<Revision> {
        let (mut events, mut bytes) = (0, 0);
        let first_outside = self.changes.iter().rev().find(|change| {
            events += 1;
            bytes += size_of::<Event>() + change.replaced;
            events > bounds.events || bytes > bounds.bytes
        });
        first_outside.map(|change| change.revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{Change, Expectation};
    use crate::embedded::record::GroupWriter;
    use crate::facts::NoFields;
    use crate::key::Key;

    /// What is needed of changes, one a revision: `a` puts, `-a` deletes.
    #[track_caller]
    fn check(changes: &[&str], bounds: WindowBounds, expected: &[&str], floor: Option<u64>) {
        let mut group = GroupWriter::new(Revision::ZERO);
        for (revision, what) in (1..).zip(changes) {
            let key = |name| Key::cluster(GroupResource::new("", "things"), name);
            let json = || br#"{"metadata":{"name":"a"}}"#.to_vec();
            let change = match what.strip_prefix('-') {
                Some(name) => Change::delete(key(name), Expectation::Any),
                None => Change::put(key(what), Expectation::Any, json(), &NoFields).unwrap(),
            };
            group.commit(Revision::new(revision), &[change], None);
        }
        let (bytes, _) = group.seal(0, Revision::ZERO, false);
        let mut outline = Outline::default();
        assert!(outline.add(&GroupReader::read(&bytes).unwrap()).is_ok());
        let mut needed = outline.needed(bounds);
        assert_eq!(needed.floors().map(|(_, floor)| floor.get()).next(), floor);
        let found: Vec<&str> = changes.iter().copied().filter(|_| needed.next()).collect();
        assert_eq!(found, expected);
        assert!(needed.next(), "what comes behind is not known");
    }

    #[test]
    fn of_what_comes_before_the_window_the_newest_version_of_each_object_is_needed() {
        let bounds = |events| WindowBounds { events, ..WindowBounds::default() };
        check(&["a", "b", "a", "a", "b"], bounds(9), &["a", "b", "a", "a", "b"], None);
        check(&["a", "b", "a", "a", "b"], bounds(1), &["b", "a", "b"], Some(4));
        check(&["a", "a", "-a", "b", "b"], bounds(0), &["-a", "b"], Some(5));
        check(&["a", "a", "a", "a"], bounds(2), &["a", "a", "a"], Some(2));
    }

    #[test]
    fn a_window_is_also_bounded_by_what_the_replaced_versions_take() {
        let bounds = WindowBounds { bytes: 2 * size_of::<Event>() + 25, ..WindowBounds::default() };
        check(&["a", "a", "b", "a"], bounds, &["a", "b", "a"], Some(2));
    }
}
