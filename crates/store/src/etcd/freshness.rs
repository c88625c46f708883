//! What is newest in etcd, and waiting until the feed has got there.
//!
//! One question to etcd serves everybody who asked before it was sent, so that consistent reads cost one call for many.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use setpoint_api::Revision;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::Shared;
use super::grpc::CallError;
use super::messages::{Operation, RANGE, RangeRequest, RangeResponse, TXN, TxnRequest, TxnResponse, revision};
use crate::log::Unavailable;

/// Most who wait for the next question; more wait at the door.
const WAITING_MAX: usize = 4096;

/// How long a member may take to say what is newest, and how long one after another is asked.
const CALL_MAX: Duration = Duration::from_secs(3);
const TRY_MAX: Duration = Duration::from_secs(2);

/// How long the feed may take until it is as new as that.
const REACH_MAX: Duration = Duration::from_secs(5);

/// Events mostly come by themselves within this time; only then the feed is asked how far it is.
const GRACE: Duration = Duration::from_millis(5);

/// Pause before it is asked again, and the longest such pause.
const NUDGE: Duration = Duration::from_millis(50);
const NUDGE_MAX: Duration = Duration::from_secs(5);

/// The name of what is written to hear from the feed, where it can't be asked.
const BEAT: &str = "beat";

type Reply = oneshot::Sender<Result<(), Unavailable>>;

/// Where readers wait that need what is newest.
pub(super) struct Freshness {
    waiting: mpsc::Sender<Reply>,
}

impl Freshness {
    pub(super) fn new(shared: Arc<Shared>) -> (Freshness, impl Future<Output = ()>) {
        let (waiting, asked) = mpsc::channel(WAITING_MAX);
        (Freshness { waiting }, run(shared, asked))
    }

    /// Waits until the feed has everything that was committed before this call.
    pub(super) async fn wait(&self) -> Result<(), Unavailable> {
        let closed = || Unavailable("it was closed".into());
        let (reply, answer) = oneshot::channel();
        self.waiting.send(reply).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

async fn run(shared: Arc<Shared>, mut asked: mpsc::Receiver<Reply>) {
    let mut batch: Vec<Reply> = Vec::new();
    while asked.recv_many(&mut batch, WAITING_MAX).await > 0 {
        let replies = std::mem::take(&mut batch);
        let found = newest(&shared).await;
        match found {
            Ok(at) if shared.state.snapshot().revision() >= shared.format.revision(at) => answer(replies, Ok(())),
            Ok(at) => {
                // The next question needn't wait until the feed is there.
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    let reached = reach(&shared, at, Instant::now() + REACH_MAX).await;
                    answer(replies, reached);
                });
            }
            Err(error) => answer(replies, Err(Unavailable(error.to_string()))),
        }
    }
}

fn answer(replies: Vec<Reply>, result: Result<(), Unavailable>) {
    for reply in replies {
        // Who has gone away needs no answer.
        let _ = reply.send(result.clone());
    }
}

/// The newest revision of etcd, as a majority of its members knows it.
pub(super) async fn newest(shared: &Shared) -> Result<i64, CallError> {
    let request = RangeRequest { key: shared.keys.own(BEAT), count_only: true, ..RangeRequest::default() };
    let answer: RangeResponse = shared.channel.ask(RANGE, &request, CALL_MAX, TRY_MAX).await?;
    Ok(revision(answer.header.as_ref()))
}

/// Waits until the feed is at a revision of etcd.
pub(super) async fn reach(shared: &Shared, at: i64, deadline: Instant) -> Result<(), Unavailable> {
    let wanted = shared.format.revision(at);
    let mut revisions = shared.state.revisions();
    let is_there = async {
        // The sender lives as long as the state, which this borrows.
        let _ = revisions.wait_for(|newest| *newest >= wanted).await;
    };
    let late = |_| Unavailable("what is newest in etcd has not come here in time".into());
    timeout_at(deadline, async {
        tokio::select! {
            biased;
            () = is_there => {}
            () = nudge(shared, wanted) => {}
        }
    })
    .await
    .map_err(late)
}

/// Helps the feed to get to a revision that was seen elsewhere, for as long as it is polled.
pub(super) async fn seek(shared: &Shared, wanted: Revision) {
    nudge(shared, wanted).await;
}

/// Asks the feed how far it is, again and again: what is nobody's object brings no event. Never ends.
async fn nudge(shared: &Shared, wanted: Revision) {
    tokio::time::sleep(GRACE).await;
    let mut pause = NUDGE;
    loop {
        match shared.tells_progress.load(Ordering::Relaxed) {
            true => shared.progress.notify_one(),
            false => beat(shared, wanted).await,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(NUDGE_MAX);
    }
}

/// Writes something that the feed brings back, unless the revision is one that etcd doesn't have yet.
async fn beat(shared: &Shared, wanted: Revision) {
    let has = newest(shared).await.is_ok_and(|at| shared.format.revision(at) >= wanted);
    if !has || shared.state.snapshot().revision() >= wanted {
        return;
    }
    let put = Operation::put(shared.keys.own(BEAT), Bytes::from_static(b"beat"), 0);
    let request = TxnRequest { success: vec![put], ..TxnRequest::default() };
    // If it fails, the next one may not.
    let _ = timeout(CALL_MAX, shared.channel.call::<_, TxnResponse>(TXN, &request, CALL_MAX)).await;
}
