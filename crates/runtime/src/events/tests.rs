//! Events in virtual time.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::fake_api::{Call, FakeApi, Fault};

struct Bench {
    api: FakeApi,
    recorder: Recorder,
    lifecycle: Lifecycle,
    running: JoinHandle<Result<(), RunError>>,
}

fn start() -> Bench {
    start_with(|writer| writer)
}

fn start_with(change: impl FnOnce(EventWriter) -> EventWriter) -> Bench {
    let (api, lifecycle) = (FakeApi::default(), Lifecycle::new());
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let (recorder, writer) = recorder("thermostat", "thermostat-0", api.client(), clock, Chance::seeded(1));
    let running = tokio::spawn(Box::new(change(writer)).run(lifecycle.clone()));
    Bench { api, recorder, lifecycle, running }
}

impl Bench {
    fn say(&self, object: &str, note: &str) {
        let regarding = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Room".into()),
            namespace: Some("house".into()),
            name: Some(object.into()),
            uid: Some(format!("uid-{object}")),
            ..ObjectReference::default()
        };
        let happening =
            Happening { severity: Severity::Normal, reason: "Heated".into(), action: "Heat".into(), note: note.into() };
        self.recorder.record(regarding, happening);
    }

    async fn calls(&self) -> Vec<Call> {
        sleep(Duration::from_millis(1)).await;
        self.api.take_calls()
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_says_who_what_and_about_whom() {
    let bench = start();
    bench.say("kitchen", "21 degrees");
    let call = bench.calls().await.pop().unwrap();
    assert_eq!(call.path, "/apis/events.k8s.io/v1/namespaces/house/events");
    let expected = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": format!("kitchen.{:x}", 1_767_225_600_000_000_000_i64), "namespace": "house"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "Heated", "action": "Heat",
        "note": "21 degrees", "reportingController": "thermostat", "reportingInstance": "thermostat-0",
        "regarding": {"apiVersion": "v1", "kind": "Room", "namespace": "house", "name": "kitchen", "uid": "uid-kitchen"},
    });
    assert_eq!(call.body, expected);
}

#[tokio::test(start_paused = true)]
async fn counted_events_have_a_source_times_and_the_newest_count() {
    let bench = start_with(|writer| writer.form(Form::CountedOnHost));
    for _ in 0..3 {
        bench.say("kitchen", "21 degrees");
    }
    let calls = bench.calls().await;
    assert_eq!(calls[0].path, "/api/v1/namespaces/house/events");
    let about =
        json!({"apiVersion": "v1", "kind": "Room", "namespace": "house", "name": "kitchen", "uid": "uid-kitchen"});
    let expected = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": format!("kitchen.{:x}", 1_767_225_600_000_000_000_i64), "namespace": "house"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "count": 1,
        "type": "Normal", "reason": "Heated", "message": "21 degrees", "involvedObject": about,
        "source": {"component": "thermostat", "host": "thermostat-0"},
        "reportingComponent": "thermostat", "reportingInstance": "thermostat-0",
    });
    assert_eq!(calls[0].body, expected);
    let counts: Vec<_> = calls[1..].iter().map(|call| (call.method.clone(), call.body["count"].clone())).collect();
    assert_eq!(counts, [(Method::PATCH, json!(2)), (Method::PATCH, json!(3))]);
    sleep(Duration::from_secs(12 * 60)).await;
    assert!(bench.calls().await.is_empty(), "all is said");
    bench.say("kitchen", "21 degrees");
    let last = &bench.calls().await[0].body;
    assert_eq!((&last["count"], &last["lastTimestamp"]), (&json!(4), &json!("2026-01-01T00:12:00Z")));
}

#[tokio::test(start_paused = true)]
async fn a_paced_writer_writes_no_more_than_it_may() {
    let bench = start_with(|writer| writer.paced(Bucket::new(1.0, 3)));
    for room in 0..6 {
        bench.say(&format!("room-{room}"), "21 degrees");
    }
    assert_eq!(bench.calls().await.len(), 3);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(bench.calls().await.len(), 2);
    bench.lifecycle.drain();
    assert_eq!(bench.calls().await.len(), 1, "at its end it writes what is left");
}

#[tokio::test(start_paused = true)]
async fn the_same_again_is_a_series() {
    let bench = start();
    for _ in 0..5 {
        bench.say("kitchen", "21 degrees");
    }
    let calls = bench.calls().await;
    let methods: Vec<&Method> = calls.iter().map(|call| &call.method).collect();
    assert_eq!(methods, [Method::POST, Method::PATCH], "the third to fifth only count");
    assert_eq!(calls[1].body["series"]["count"], json!(2));
    sleep(Duration::from_secs(12 * 60)).await;
    let last = bench.calls().await;
    assert_eq!(last.iter().map(|call| &call.body["series"]["count"]).collect::<Vec<_>>(), [&json!(5)]);
    bench.say("kitchen", "21 degrees");
    assert_eq!(bench.calls().await[0].method, Method::POST, "the series is over");
}

#[tokio::test(start_paused = true)]
async fn the_last_counts_are_written_when_it_drains() {
    let bench = start();
    for _ in 0..4 {
        bench.say("kitchen", "21 degrees");
    }
    bench.lifecycle.drain();
    bench.running.await.unwrap().unwrap();
    let counts: Vec<Value> =
        bench.api.take_calls().into_iter().map(|call| call.body["series"]["count"].clone()).collect();
    assert_eq!(counts, [Value::Null, json!(2), json!(4)]);
}

#[tokio::test(start_paused = true)]
async fn similar_ones_are_combined_from_the_tenth() {
    let bench = start();
    for degrees in 0..20 {
        bench.say("kitchen", &format!("{degrees} degrees"));
    }
    let calls = bench.calls().await;
    let created: Vec<&str> = calls
        .iter()
        .filter(|call| call.method == Method::POST)
        .map(|call| call.body["note"].as_str().unwrap())
        .collect();
    assert_eq!(created.len(), 10);
    assert_eq!(created[9], "(combined from similar events): 9 degrees");
}

#[tokio::test(start_paused = true)]
async fn who_says_too_much_about_an_object_is_cut_off_and_others_are_not() {
    let bench = start();
    let mut created = 0;
    for round in 0..40 {
        // Far enough apart to be neither a series nor similar: only the number of them counts.
        bench.recorder.record(
            ObjectReference {
                name: Some("kitchen".into()),
                namespace: Some("house".into()),
                ..ObjectReference::default()
            },
            Happening {
                severity: Severity::Warning,
                reason: format!("Reason{round}"),
                action: "Heat".into(),
                note: "too hot".into(),
            },
        );
        created += bench.calls().await.len();
    }
    assert_eq!(created, 25);
    bench.say("cellar", "cold");
    assert_eq!(bench.calls().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn writing_is_tried_again_only_if_the_server_was_not_reached() {
    let bench = start();
    let mut lost = 3;
    bench.api.plan(move |_| {
        lost -= 1;
        if lost >= 0 { Fault::LoseRequest } else { Fault::None }
    });
    bench.say("kitchen", "21 degrees");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.calls().await.len(), 1);
    let mut refused = 0;
    bench.api.plan(move |_| {
        refused += 1;
        assert!(refused < 2, "a refusal is final");
        Fault::Refuse(403)
    });
    bench.say("cellar", "cold");
    sleep(Duration::from_secs(600)).await;
    assert!(bench.api.take_calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_note_is_cut_at_what_the_api_takes() {
    let bench = start();
    bench.say("kitchen", &"ü".repeat(1_000));
    let call = bench.calls().await.pop().unwrap();
    assert_eq!(call.body["note"].as_str().unwrap().len(), 1_024);
}
