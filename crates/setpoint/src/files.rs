//! How many connections there is room for: each is an open file, and a process may have only so many.

/// Files that are not connections: the log, logging, the runtime.
const RESERVED: u64 = 128;

/// Lets the process have as many files as it may, and says how many of them can be connections. Running out of files would stop the log
/// of the store as well.
pub fn room() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let found = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: found.maximum, maximum: found.maximum };
    let files = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => found.maximum,
        Err(_) => found.current,
    };
    let room = |files: u64| usize::try_from(files.saturating_sub(RESERVED)).unwrap_or(usize::MAX);
    files.map_or(usize::MAX, room).max(1)
}
