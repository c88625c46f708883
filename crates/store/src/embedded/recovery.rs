//! Reading a data directory back: the newest checkpoint, then every group after it.

use setpoint_api::Revision;

use super::directory::{self, Directory, Identity, OpenError, SEGMENT_HEADER, SegmentHeader, damaged};
use super::needed::Outline;
use super::record::{GroupReader, Groups, Reading, Unread, find_group};
use super::{Options, checkpoint};
use crate::disk::{Disk, FileInfo};
use crate::facts::Fields;
use crate::head::Head;
use crate::state::{Group, State};

/// What was found in a data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The newest revision.
    pub revision: Revision,
    /// Objects there are now.
    pub objects: usize,
    /// Objects in the checkpoint.
    pub checkpoint_objects: usize,
    /// Segments replayed after it.
    pub segments: usize,
    /// Commits in them.
    pub commits: usize,
    /// Whether the store had been closed in order.
    pub clean: bool,
    /// A write that a crash cut short. It was never acknowledged as durable.
    pub torn: Option<TornTail>,
    /// Records that should be sealed and are not: they were written when nobody asked for it.
    pub unsealed: usize,
}

/// The rest of a write that a crash cut short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The file.
    pub file: String,
    /// Where it begins.
    pub offset: u64,
}

/// A directory read back, ready for its next segment.
pub(crate) struct Recovered {
    pub(crate) state: State,
    pub(crate) position: Position,
    pub(crate) report: Report,
    /// Files that nothing needs any more.
    pub(crate) obsolete: Vec<String>,
}

/// Where the log goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    pub(crate) identity: Identity,
    pub(crate) sequence: u64,
    pub(crate) chain: u32,
    pub(crate) previous_end: u64,
    /// Bytes in segments since the checkpoint.
    pub(crate) log_bytes: u64,
}

/// How much of a log is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Every version of every object.
    Everything,
    /// What can be seen from now on. Checksums are held against all the same.
    Present,
}

/// Checks everything, and reads what is asked for. Changes nothing on the disk.
pub(crate) async fn recover(
    disk: &dyn Disk,
    directory: Directory,
    fields: &dyn Fields,
    options: &Options,
    scope: Scope,
) -> Result<Recovered, OpenError> {
    let mut reading = Reading::new(fields, options.seal.as_deref());
    let Some((first, file)) = directory.checkpoints.last().cloned() else {
        return Err(damaged(&directory::checkpoint_name(1), 0, "there is no checkpoint"));
    };
    let (header, head) = checkpoint::read(disk, &file.name, &mut reading).await?;
    if header.identity != directory.identity || header.segment != first {
        return Err(damaged(&file.name, 0, "it belongs to another store or place"));
    }
    let (needed, old): (Vec<_>, Vec<_>) = directory.segments.into_iter().partition(|(sequence, _)| *sequence >= first);
    let mut obsolete = directory.temporary;
    obsolete.extend(old.into_iter().map(|(_, file)| file.name));
    obsolete.extend(directory.checkpoints.iter().rev().skip(1).map(|(_, file)| file.name.clone()));

    let mut replay = Replay {
        disk,
        reading,
        report: Report { checkpoint_objects: count(&head), ..Report::default() },
        state: State::new(head.clone(), options.window),
        head,
        position: Position {
            identity: directory.identity,
            sequence: first,
            chain: header.chain,
            previous_end: 0,
            log_bytes: 0,
        },
        clean: true,
    };
    if needed.is_empty() && first > 1 {
        // Only a new directory has no segment yet: a later checkpoint is made when its segment is there.
        return Err(damaged(&directory::segment_name(first), 0, "the segment is missing"));
    }
    let headers = replay.headers(&needed, &mut obsolete).await?;
    if scope == Scope::Present {
        let needed = replay.outline(&headers).await?.needed(options.window);
        needed.floors().for_each(|(resource, floor)| replay.state.forget(resource, *floor));
        replay.reading.needed = needed;
    }
    for (index, (header, file)) in headers.iter().enumerate() {
        let next = headers.get(index + 1).map(|(header, _)| header);
        replay.segment(header, file, next).await?;
    }
    Ok(replay.finish(options, obsolete))
}

/// The groups of a segment. What is behind the end that the next one tells was never durable.
fn groups<'a>(bytes: &'a [u8], next: Option<&SegmentHeader>, chain: u32) -> Groups<'a> {
    let end = next.map_or(bytes.len(), |next| bytes.len().min(next.previous_end as usize));
    Groups { bytes: &bytes[..end], at: SEGMENT_HEADER, chain }
}

fn count(head: &Head) -> usize {
    head.tables.iter().map(|(_, table)| table.len()).sum()
}

struct Replay<'a> {
    disk: &'a dyn Disk,
    reading: Reading<'a>,
    report: Report,
    state: State,
    head: Head,
    position: Position,
    clean: bool,
}

impl Replay<'_> {
    /// The headers of all segments, checked. A last segment whose creation was cut off is left out.
    async fn headers(
        &self,
        files: &[(u64, FileInfo)],
        obsolete: &mut Vec<String>,
    ) -> Result<Vec<(SegmentHeader, FileInfo)>, OpenError> {
        let mut headers: Vec<(SegmentHeader, FileInfo)> = Vec::new();
        for (index, (sequence, file)) in files.iter().enumerate() {
            let expected = self.position.sequence + index as u64;
            if *sequence != expected {
                let missing = directory::segment_name(expected);
                return Err(damaged(&missing, 0, "the segment is missing"));
            }
            let bytes = self.disk.read(&file.name, 0, SEGMENT_HEADER).await?;
            match SegmentHeader::decode(&bytes) {
                Some(header) if header.sequence == *sequence && header.identity == self.position.identity => {
                    headers.push((header, file.clone()));
                }
                Some(_) => return Err(damaged(&file.name, 0, "it belongs to another store or place")),
                None if index + 1 == files.len() && self.has_no_groups(file).await? => obsolete.push(file.name.clone()),
                None => return Err(damaged(&file.name, 0, "its header does not hold")),
            }
        }
        Ok(headers)
    }

    /// Which objects changed when, as far as the groups hold together. What comes behind is read whole, to be told what is wrong with it.
    async fn outline(&self, headers: &[(SegmentHeader, FileInfo)]) -> Result<Outline, OpenError> {
        let mut outline = Outline::default();
        for (index, (header, file)) in headers.iter().enumerate() {
            let next = headers.get(index + 1).map(|(header, _)| header);
            let bytes = self.disk.read(&file.name, 0, file.length as usize).await?;
            let mut groups = groups(&bytes, next, header.chain);
            if groups.any(|group| outline.add(&group).is_err()) || next.is_some_and(|next| next.chain != groups.chain) {
                break;
            }
        }
        Ok(outline)
    }

    /// A header is durable before the first group is written: without one there is nothing to lose.
    async fn has_no_groups(&self, file: &FileInfo) -> Result<bool, OpenError> {
        let bytes = self.disk.read(&file.name, 0, file.length as usize).await?;
        Ok(find_group(&bytes, 0).is_none())
    }

    async fn segment(
        &mut self,
        header: &SegmentHeader,
        file: &FileInfo,
        next: Option<&SegmentHeader>,
    ) -> Result<(), OpenError> {
        if header.chain != self.position.chain {
            return Err(damaged(&file.name, 0, "it does not follow the segment before it"));
        }
        self.skip_to(header.base).map_err(|why| damaged(&file.name, 0, why))?;
        let bytes = self.disk.read(&file.name, 0, file.length as usize).await?;
        let mut groups = groups(&bytes, next, self.position.chain);
        self.clean = false;
        let mut at = groups.at;
        while let Some(group) = groups.next() {
            self.group(&group).map_err(|why| why.at(&file.name, at as u64))?;
            self.position.chain = group.crc;
            self.clean = group.clean;
            at = groups.at;
        }
        if next.is_some_and(|next| next.previous_end != at as u64) {
            return Err(damaged(&file.name, at as u64, "a group that was durable does not hold"));
        }
        if next.is_none() && bytes[at..].iter().any(|byte| *byte != 0) {
            self.torn_tail(&bytes, at, file)?;
        }
        self.position.sequence = header.sequence + 1;
        self.position.previous_end = at as u64;
        self.position.log_bytes += at as u64;
        self.report.segments += 1;
        Ok(())
    }

    /// Only what was never known to be durable may be cut: a later group knows better.
    fn torn_tail(&mut self, bytes: &[u8], at: usize, file: &FileInfo) -> Result<(), OpenError> {
        let mut from = at;
        while let Some((found, group)) = find_group(bytes, from) {
            if group.durable > self.head.revision {
                let why =
                    format!("revisions up to {} were durable, the log ends at {}", group.durable, self.head.revision);
                return Err(damaged(&file.name, at as u64, why));
            }
            from = found + group.size;
        }
        self.clean = false;
        self.report.torn = Some(TornTail { file: file.name.clone(), offset: at as u64 });
        Ok(())
    }

    fn group(&mut self, group: &GroupReader<'_>) -> Result<(), Unread> {
        if group.base != self.head.revision {
            return Err(Unread::Broken("a group that does not follow the one before it"));
        }
        let commits = group.commits(&mut self.reading)?;
        self.report.commits += commits.len();
        let mut events = Vec::new();
        for (revision, changes) in commits {
            for change in changes {
                events.push(self.head.apply(revision, change));
            }
            self.head.revision = revision;
        }
        // Nobody watches yet.
        let _ = self.state.publish(Group { head: self.head.clone(), events });
        Ok(())
    }

    /// Goes on at a later revision, where an earlier start did.
    fn skip_to(&mut self, base: Revision) -> Result<(), &'static str> {
        if base < self.head.revision {
            return Err("its revisions are older than those before it");
        }
        if base > self.head.revision {
            self.state.skip_lost(self.head.revision, base);
            self.head.revision = base;
        }
        Ok(())
    }

    fn finish(mut self, options: &Options, obsolete: Vec<String>) -> Recovered {
        self.report.clean = self.clean;
        if !self.clean {
            // Relaxed revisions may have been seen and lost: none of them may ever mean something else.
            let next = Revision::new(self.head.revision.get() + u64::from(options.relaxed_max) + 1);
            self.skip_to(next).expect("a later revision");
        }
        self.report.revision = self.head.revision;
        self.report.objects = count(&self.head);
        self.report.unsealed = self.reading.unsealed;
        Recovered { state: self.state, position: self.position, report: self.report, obsolete }
    }
}
