//! Profiles, taken by whoever can. What the process can't do is answered as such.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

/// The form of a CPU profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuFormat {
    /// `profile.proto`, gzipped or not: what `go tool pprof` and its kin read.
    Protobuf,
    /// A picture for the browser.
    Flamegraph,
}

type Cpu = Arc<dyn Fn(Duration, CpuFormat) -> BoxFuture<'static, Result<Vec<u8>, String>> + Send + Sync>;
type Heap = Arc<dyn Fn(Option<Duration>) -> BoxFuture<'static, Result<Vec<u8>, String>> + Send + Sync>;

/// What a program can tell about where its time and memory go. Each is a hook, because how is up to the program: the heap
/// depends on its allocator, of which a program has one.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use setpoint_runtime::probes::Profiles;
///
/// let profiles = Profiles::default().with_heap(|_time| Box::pin(async { Ok(b"a profile".to_vec()) }));
/// let answer = profiles.answer(&http::Method::GET, &"/debug/pprof/heap".parse().unwrap()).await;
/// assert_eq!(answer.body(), "a profile");
/// # });
/// ```
#[derive(Clone, Default)]
pub struct Profiles {
    pub(super) cpu: Option<Cpu>,
    pub(super) heap: Option<Heap>,
    pub(super) off: bool,
}

impl Profiles {
    /// None are taken, whatever the program can: its operator wants it so.
    #[must_use]
    pub fn off() -> Profiles {
        Profiles { off: true, ..Profiles::default() }
    }

    /// Takes CPU profiles with `take`, which samples for as long as it is told and must not block.
    #[must_use]
    pub fn with_cpu(
        self,
        take: impl Fn(Duration, CpuFormat) -> BoxFuture<'static, Result<Vec<u8>, String>> + Send + Sync + 'static,
    ) -> Profiles {
        Profiles { cpu: Some(Arc::new(take)), ..self }
    }

    /// Takes heap profiles, as `profile.proto`, with `take`: of all that lives, or of what is allocated within a time and lives at
    /// its end.
    #[must_use]
    pub fn with_heap(
        self,
        take: impl Fn(Option<Duration>) -> BoxFuture<'static, Result<Vec<u8>, String>> + Send + Sync + 'static,
    ) -> Profiles {
        Profiles { heap: Some(Arc::new(take)), ..self }
    }
}

impl fmt::Debug for Profiles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cpu, heap) = (self.cpu.is_some(), self.heap.is_some());
        formatter.debug_struct("Profiles").field("cpu", &cpu).field("heap", &heap).finish()
    }
}
