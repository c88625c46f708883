//! Looks after etcd: whether it answers, and what it complains about.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Shared;
use super::grpc::CallError;
use super::messages::{
    ALARM, AlarmRequest, AlarmResponse, Empty, RANGE, RangeRequest, RangeResponse, STATUS, StatusResponse, revision,
};

/// How often it is asked.
const EVERY: Duration = Duration::from_secs(2);

/// How long it may take. A member from which nothing at all was heard meanwhile is given up.
const CALL_MAX: Duration = Duration::from_secs(3);

/// Every so many times it is asked how it is, too.
const STATUS_EVERY: u32 = 5;

/// Names of alarms, by their numbers.
const ALARMS: [(i32, &str); 2] = [(1, "NOSPACE"), (2, "CORRUPT")];

pub(super) async fn run(shared: Arc<Shared>) {
    let mut turn = 0_u32;
    loop {
        let seen = shared.state.snapshot().revision();
        let answered = ask(&shared).await;
        shared.figures().reachable = answered.is_ok();
        let health = match answered {
            Ok(at) if shared.format.revision(at) < seen => {
                return shared.stop(format!("etcd went back to revision {at}: it was restored, or it is another one"));
            }
            Ok(_) => {
                if turn.is_multiple_of(STATUS_EVERY) {
                    look(&shared).await;
                }
                turn = turn.wrapping_add(1);
                match shared.figures().alarms.first() {
                    Some(alarm) => Err(format!("etcd has raised the alarm {alarm}")),
                    None => Ok(()),
                }
            }
            Err(error) => Err(error.to_string()),
        };
        shared.health.send_if_modified(|known| {
            let changed = *known != health;
            if let (true, Err(why)) = (changed, &health) {
                tracing::warn!(why, "etcd is not well");
            }
            *known = health;
            changed
        });
        tokio::time::sleep(EVERY).await;
    }
}

/// What is newest. The call is not one of those that give up a member that is slow, but heard from.
async fn ask(shared: &Shared) -> Result<i64, CallError> {
    let member = timeout(CALL_MAX, shared.channel.member());
    let member = member.await.map_err(|_| CallError::Unsent("etcd could not be reached in time".into()))??;
    let before = member.connection.heard();
    let request = RangeRequest { key: shared.keys.own("beat"), count_only: true, ..RangeRequest::default() };
    let answer = timeout(CALL_MAX, member.connection.unary::<_, RangeResponse>(RANGE, &request)).await;
    match answer {
        Ok(Ok(answer)) => Ok(revision(answer.header.as_ref())),
        Ok(Err(error)) => {
            member.connection.close();
            Err(error)
        }
        Err(_) => {
            if member.connection.heard() == before {
                member.connection.close();
            }
            Err(CallError::Lost("etcd did not answer in time".into()))
        }
    }
}

/// How large it is, and what it complains about.
async fn look(shared: &Shared) {
    let status: Result<StatusResponse, _> = shared.channel.call(STATUS, &Empty {}, CALL_MAX).await;
    let alarms: Result<AlarmResponse, _> = shared.channel.call(ALARM, &AlarmRequest::default(), CALL_MAX).await;
    let mut figures = shared.figures();
    if let Ok(status) = status {
        figures.database_bytes = u64::try_from(status.database_bytes).unwrap_or(0);
        figures.database_bytes_in_use = u64::try_from(status.database_bytes_in_use).unwrap_or(0);
    }
    if let Ok(found) = alarms {
        let raised = |number: i32| found.alarms.iter().any(|alarm| alarm.alarm == number);
        figures.alarms = ALARMS.iter().filter(|(number, _)| raised(*number)).map(|(_, name)| *name).collect();
    }
}
