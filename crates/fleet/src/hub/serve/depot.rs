//! Firmware from a folder: files named by their SHA-256, whole or from where a download broke off.

use std::collections::HashMap;
use std::io::{self, SeekFrom};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use setpoint_fleet_protocol::Party;
use setpoint_fleet_protocol::metadata::{METADATA_BYTES_MAX, ROOT_PATH};
use setpoint_runtime::Key;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::budget::Budget;
use super::{Body, Desk, full, plain};
use crate::hub::Credential;

/// Where firmware is.
pub const PATH: &str = "/v1/firmware/";

/// Bytes that are read and sent at a time.
const CHUNK: usize = 64 * 1024;

/// Downloads at once; each holds a file and a chunk.
const DOWNLOADS: usize = 256;

/// Downloads at once of one vehicle: one, and one that breaks off and isn't noticed yet. A gateway speaks for many.
const DOWNLOADS_OF_A_VEHICLE: usize = 2;
const DOWNLOADS_OF_A_GATEWAY: usize = DOWNLOADS / 4;

/// Seconds over which those are spread that are sent away.
const SPREAD_SECONDS: u64 = 30;

/// Budgets of rollouts that are kept before those that are over are forgotten.
const ROLLOUTS_MAX: usize = 256;

/// The folder, and how fast it is emptied.
pub struct Depot {
    folder: Option<PathBuf>,
    budget: Arc<Budget>,
    /// Of rollouts that have one, by their names.
    rollouts: Mutex<HashMap<Key, Arc<Budget>>>,
    places: Arc<Semaphore>,
    /// How many downloads each caller has under way.
    callers: Arc<Mutex<HashMap<Party, usize>>>,
}

/// The place of one download.
struct Place {
    _permit: OwnedSemaphorePermit,
    caller: Party,
    callers: Arc<Mutex<HashMap<Party, usize>>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = callers.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                callers.remove(&self.caller);
            }
        }
    }
}

impl Depot {
    pub fn new(folder: Option<PathBuf>, bytes_per_second: Option<u64>) -> Depot {
        let budget = Arc::new(Budget::new(bytes_per_second));
        let places = Arc::new(Semaphore::new(DOWNLOADS));
        Depot { folder, budget, rollouts: Mutex::default(), places, callers: Arc::default() }
    }

    /// A place for a download, if there is one, and this caller doesn't have its share already.
    fn place(&self, caller: &Party) -> Option<Place> {
        let most = match caller {
            Party::Vehicle(_) => DOWNLOADS_OF_A_VEHICLE,
            Party::Gateway { .. } => DOWNLOADS_OF_A_GATEWAY,
        };
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let count = callers.get(caller).copied().unwrap_or_default();
        let permit = (count < most).then(|| self.places.clone().try_acquire_owned().ok())??;
        callers.insert(caller.clone(), count + 1);
        Some(Place { _permit: permit, caller: caller.clone(), callers: self.callers.clone() })
    }

    /// All budgets that a download has to keep to: the hub's, and those of the rollouts that it is for.
    fn budgets(&self, rates: &[(Key, u64)]) -> Vec<Arc<Budget>> {
        let mut known = self.rollouts.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= ROLLOUTS_MAX {
            // Those that are over; the others keep theirs as long as somebody downloads.
            known.retain(|_, budget| Arc::strong_count(budget) > 1);
        }
        let mut budgets = vec![self.budget.clone()];
        for (key, rate) in rates {
            let budget = known.entry(key.clone()).or_insert_with(|| Arc::new(Budget::new(None)));
            budget.set(Some(*rate));
            budgets.push(budget.clone());
        }
        budgets
    }
}

/// Answers a download.
pub async fn answer(
    desk: &Desk,
    (party, credential): (&Party, &Credential),
    request: &Request<Incoming>,
) -> Response<Body> {
    let depot = &desk.depot;
    let digest = request.uri().path().strip_prefix(PATH).unwrap_or_default();
    let is_digest =
        digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let Some(folder) = depot.folder.as_ref().filter(|_| is_digest) else {
        return plain(StatusCode::NOT_FOUND, "there is no such firmware");
    };
    let own_key = matches!(party, Party::Vehicle(_)).then_some(credential.key.as_str());
    if !desk.hub.may_download(party, own_key, digest) {
        return plain(StatusCode::FORBIDDEN, "no task of yours asks for this firmware");
    }
    let budgets = depot.budgets(&desk.hub.rates(party, digest));
    let admitted = budgets.iter().try_for_each(|budget| budget.admits());
    let place = match (admitted, depot.place(party)) {
        (Ok(()), Some(place)) => place,
        (admitted, _) => return busy(desk, admitted.err().unwrap_or_default()),
    };
    let opened = async {
        let file = File::open(folder.join(digest)).await?;
        let length = file.metadata().await?.len();
        Ok::<_, io::Error>((file, length))
    };
    let Ok((mut file, length)) = opened.await else {
        return plain(StatusCode::NOT_FOUND, "there is no such firmware");
    };
    let tag = format!("\"{digest}\"");
    let Some((status, start, end)) = part(request, &tag, length) else {
        let mut response = plain(StatusCode::RANGE_NOT_SATISFIABLE, "there are no such bytes");
        insert(&mut response, header::CONTENT_RANGE, format!("bytes */{length}"));
        return response;
    };
    if file.seek(SeekFrom::Start(start)).await.is_err() {
        return plain(StatusCode::INTERNAL_SERVER_ERROR, "the firmware can't be read");
    }
    let chunks = stream::try_unfold((file, end - start, place), move |(mut file, left, place)| {
        let budgets = budgets.clone();
        async move {
            if left == 0 {
                return Ok::<_, io::Error>(None);
            }
            let mut chunk = vec![0; CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
            let count = file.read(&mut chunk).await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            chunk.truncate(count);
            for budget in &budgets {
                budget.spend(count).await;
            }
            Ok(Some((Frame::data(Bytes::from(chunk)), (file, left - count as u64, place))))
        }
    });
    let body = if request.method() == http::Method::HEAD { full("") } else { StreamBody::new(chunks).boxed() };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    insert(&mut response, header::ACCEPT_RANGES, "bytes".to_owned());
    insert(&mut response, header::ETAG, tag);
    insert(&mut response, header::CONTENT_LENGTH, (end - start).to_string());
    if status == StatusCode::PARTIAL_CONTENT {
        insert(&mut response, header::CONTENT_RANGE, format!("bytes {start}-{}/{length}", end.saturating_sub(1)));
    }
    response
}

/// Answers with a root: the file `root-VERSION.json` beside the firmware. It is signed, and no secret.
pub async fn root(desk: &Desk, path: &str) -> Response<Body> {
    let version = path.strip_prefix(ROOT_PATH).and_then(|text| text.parse::<u64>().ok());
    let file = version.zip(desk.depot.folder.as_ref()).map(|(version, folder)| folder.join(root_file(version)));
    let text = match file {
        Some(file) => tokio::fs::read(file).await.ok(),
        None => None,
    };
    match text.filter(|text| text.len() <= METADATA_BYTES_MAX) {
        Some(text) => Response::new(full(text)),
        None => plain(StatusCode::NOT_FOUND, "there is no such root"),
    }
}

/// The file of a root beside the firmware that a hub hands out.
#[must_use]
pub fn root_file(version: u64) -> String {
    format!("root-{version}.json")
}

/// Which bytes are asked for: from, to (not included). None if there are no such.
fn part(request: &Request<Incoming>, tag: &str, length: u64) -> Option<(StatusCode, u64, u64)> {
    let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let is_same = text(header::IF_RANGE).is_none_or(|known| known == tag);
    range(text(header::RANGE).filter(|_| is_same), length)
}

fn range(asked: Option<&str>, length: u64) -> Option<(StatusCode, u64, u64)> {
    let whole = Some((StatusCode::OK, 0, length));
    // Several ranges, or what can't be read, is answered with the whole.
    let Some((from, to)) = asked.and_then(|text| text.strip_prefix("bytes=")).and_then(|text| text.split_once('-'))
    else {
        return whole;
    };
    let Ok(from) = from.parse::<u64>() else { return whole };
    let end = match to {
        "" => length,
        to => match to.parse::<u64>() {
            Ok(to) => to.saturating_add(1).min(length),
            Err(_) => return whole,
        },
    };
    (from < end).then_some((StatusCode::PARTIAL_CONTENT, from, end))
}

fn busy(desk: &Desk, wait: Duration) -> Response<Body> {
    let seconds = wait.as_secs() + 1 + desk.hub.shared.chance.below(SPREAD_SECONDS);
    let mut response = plain(StatusCode::TOO_MANY_REQUESTS, "too many download at once");
    insert(&mut response, header::RETRY_AFTER, seconds.to_string());
    response
}

fn insert(response: &mut Response<Body>, name: header::HeaderName, value: String) {
    if let Ok(value) = value.parse() {
        response.headers_mut().insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_download_keeps_to_the_hubs_budget_and_to_that_of_its_rollout() {
        let depot = Depot::new(None, Some(4000));
        let key = |name: &str| Key::namespaced("default", name);
        for (rates, seconds) in [(vec![], 2), (vec![(key("slow"), 1000)], 8), (vec![(key("fast"), 100_000)], 2)] {
            let (budgets, start) = (depot.budgets(&rates), tokio::time::Instant::now());
            for _ in 0..8 {
                for budget in &budgets {
                    budget.spend(1000).await;
                }
            }
            // What was owed before, or was left, is less than a second of it.
            assert!(start.elapsed().as_secs().abs_diff(seconds) <= 1, "{rates:?}: {:?}", start.elapsed());
        }
    }

    #[test]
    fn no_vehicle_takes_the_places_of_others() {
        let depot = Depot::new(None, None);
        let vehicle = |number: usize| {
            Party::Vehicle(setpoint_fleet_protocol::VehicleName::new("default", &format!("v-{number}")).unwrap())
        };
        let of_one: Vec<_> = (0..260).filter_map(|_| depot.place(&vehicle(0))).collect();
        assert_eq!(of_one.len(), 2);
        let of_others: Vec<_> = (1..300).filter_map(|number| depot.place(&vehicle(number))).collect();
        assert_eq!(of_others.len(), 254);
        drop(of_one);
        assert!(depot.place(&vehicle(0)).is_some());
        drop(of_others);
        let gateway = Party::Gateway { namespace: "default".into(), name: "depot".into() };
        let of_gateway: Vec<_> = (0..260).filter_map(|_| depot.place(&gateway)).collect();
        assert_eq!(of_gateway.len(), 64);
    }

    #[test]
    fn a_range_is_from_where_it_broke_off() {
        let whole = Some((StatusCode::OK, 0, 100));
        let partial = |from, to| Some((StatusCode::PARTIAL_CONTENT, from, to));
        for (asked, expected) in [
            (None, whole),
            (Some("bytes=0-"), partial(0, 100)),
            (Some("bytes=40-"), partial(40, 100)),
            (Some("bytes=40-49"), partial(40, 50)),
            (Some("bytes=40-1000"), partial(40, 100)),
            (Some("bytes=100-"), None),
            (Some("bytes=-5"), whole),
            (Some("bytes=1-2,4-5"), whole),
            (Some("rows=1-"), whole),
        ] {
            assert_eq!(range(asked, 100), expected, "{asked:?}");
        }
    }
}
