use super::*;

const NOTHING: Value = Value::Null;

fn subject<'a>(history: &'a [Value], traces: &'a Value) -> Subject<'a> {
    let object = history.last().unwrap_or(&NOTHING);
    Subject { object, resource: ("apps", "deployments"), key: "a/b".to_owned(), history, events: &[], traces }
}

/// A moment of one minute.
fn at(time: &str) -> Value {
    format!("2026-01-01T00:00:{time}Z").into()
}

fn entry(manager: &str, time: &str, fields: Value) -> Value {
    let mut entry = json!({"manager": manager, "operation": "Update", "fieldsV1": fields});
    if !time.is_empty() {
        entry["time"] = at(time);
    }
    entry
}

fn version(number: u64, data: Value, entries: &[Value]) -> Value {
    let metadata = json!({
        "resourceVersion": number.to_string(), "creationTimestamp": at("00"), "managedFields": entries, "generation": 1,
    });
    json!({"kind": "Deployment", "metadata": metadata, "spec": data})
}

/// A run that saw one version of the object and made others.
fn run(started: &str, saw: u64, made: &[u64]) -> Value {
    let write = |version: &u64| json!({"group": "apps", "plural": "deployments", "subresource": "status", "key": "a/b", "resourceVersion": version.to_string()});
    json!({
        "key": "a/b", "started": at(started), "tookSeconds": 0.05, "objectVersion": saw.to_string(),
        "outcome": {"result": "done"}, "writes": made.iter().map(write).collect::<Vec<_>>(),
    })
}

fn lines(subject: &Subject<'_>) -> Vec<String> {
    let line = |moment: &Moment| {
        let second = moment.time().split_at(17).1.trim_end_matches('Z').to_owned();
        format!("{second} {} {} {}", moment.what, moment.who, moment.detail).replace("  ", " ")
    };
    moments(subject).iter().filter(|moment| moment.what != "created").map(line).collect()
}

#[test]
fn every_version_that_is_kept_is_told_once() {
    let (x, y) = (json!({"f:x": {}}), json!({"f:y": {}}));
    let a = |time: &str| entry("a", time, x.clone());
    let history = [
        version(5, json!({"x": 1}), &[a("01")]),
        version(7, json!({"x": 2}), &[a("02")]),
        version(9, json!({"x": 2, "y": 1}), &[a("02"), entry("b", "03", y.clone())]),
        // What is only taken away leaves no trace of who did it, and when.
        version(11, json!({"x": 2}), &[a("02")]),
        version(12, json!({"x": 2, "y": 2}), &[a("02"), entry("c", "09", y)]),
        // Twice within a second, by the same.
        version(13, json!({"x": 2, "y": 3}), &[a("02"), entry("c", "09", json!({"f:y": {}}))]),
    ];
    let expected = [
        "01 write a Update, version 5",
        "02 write a Update, version 7",
        "03 write b Update, version 9",
        "03 write fields taken away, version 11, then or later",
        "09 write c Update, version 12",
        "09 write c Update, version 13, then or later",
    ];
    assert_eq!(lines(&subject(&history, &NOTHING)), expected);
    assert!(is_whole(&history) && !is_whole(&history[2..]) && !is_whole(&[]));
}

#[test]
fn who_takes_a_field_over_wrote_it_and_not_who_lost_it() {
    let all = json!({"f:replicas": {}, "f:image": {}});
    let history = [
        version(5, json!({"replicas": 3}), &[entry("one", "01", all)]),
        version(
            6,
            json!({"replicas": 6}),
            &[entry("one", "01", json!({"f:image": {}})), entry("two", "04", json!({"f:replicas": {}}))],
        ),
    ];
    assert_eq!(
        lines(&subject(&history, &NOTHING)),
        ["01 write one Update, version 5", "04 write two Update, version 6"]
    );
}

#[test]
fn a_write_without_a_time_is_told_when_a_run_saw_it() {
    let scaled = entry("scale", "", json!({"f:replicas": {}}));
    let mut history = [
        version(5, json!({"replicas": 3}), &[entry("one", "01", json!({"f:image": {}, "f:replicas": {}}))]),
        version(8, json!({"replicas": 6}), &[entry("one", "01", json!({"f:image": {}})), scaled]),
    ];
    history[1]["metadata"]["generation"] = 2.into();
    let traces = json!({"deployment": [run("01.5", 5, &[]), run("30.2", 8, &[])]});
    let expected = [
        "01 write one Update, version 5",
        "01 reconcile deployment took 50.0 ms, done",
        "30 write scale Update, version 8",
        "30 reconcile deployment took 50.0 ms, done",
    ];
    assert_eq!(lines(&subject(&history, &traces)), expected);
}

#[test]
fn a_write_of_a_run_is_its_controllers_and_stands_after_it() {
    let entries =
        |set: &str| [entry("setpoint", "02", json!({"f:x": {}})), entry("kubectl-set", set, json!({"f:y": {}}))];
    let history = [
        version(5, json!({"x": 1}), &[entry("setpoint", "01", json!({"f:x": {}}))]),
        version(83, json!({"x": 2}), &[entry("setpoint", "02", json!({"f:x": {}}))]),
        version(86, json!({"x": 3}), &[entry("setpoint", "02", json!({"f:x": {}}))]),
        version(92, json!({"x": 3, "y": 1}), &entries("02")),
        version(95, json!({"x": 4, "y": 1}), &entries("02")), // written twice within a second: its entry is as before
    ];
    // The last one changed nothing: what it was answered with is older.
    let traces = json!({"deployment": [
        run("50", 95, &[86]), run("02.6", 92, &[95]), run("02.1", 5, &[83, 86]),
    ]});
    let expected = [
        "01 write setpoint Update, version 5",
        "02 reconcile deployment took 50.0 ms, 2 writes, done",
        "02 write deployment Update, version 83",
        "02 write deployment Update of status, version 86",
        "02 write kubectl-set Update, version 92",
        "02 reconcile deployment took 50.0 ms, 1 write, done",
        "02 write deployment Update of status, version 95",
        "50 reconcile deployment took 50.0 ms, 1 write, done",
    ];
    assert_eq!(lines(&subject(&history, &traces)), expected);
}

#[test]
fn a_run_for_another_object_of_the_same_name_is_not_told() {
    let history = [version(5, json!({"x": 1}), &[entry("one", "01", json!({"f:x": {}}))])];
    let other = json!({"key": "a/b", "started": at("01.2"), "objectVersion": "4", "outcome": {"result": "done"}});
    let traces = json!({"endpointslice": [other], "deployment": [run("01.3", 5, &[])]});
    assert_eq!(
        lines(&subject(&history, &traces)),
        ["01 write one Update, version 5", "01 reconcile deployment took 50.0 ms, done"]
    );
}

#[test]
fn a_condition_stands_beside_the_write_that_first_said_it() {
    let says = |mut version: Value, status: &str, time: &str| {
        version["status"] =
            json!({"conditions": [{"type": "Ready", "status": status, "reason": "R", "lastTransitionTime": at(time)}]});
        version
    };
    let x = |time: &str| entry("one", time, json!({"f:x": {}}));
    let history = [
        version(5, json!({"x": 1}), &[x("01")]),
        says(version(6, json!({"x": 2}), &[x("02")]), "True", "02"),
        says(version(7, json!({"x": 3}), &[x("02"), entry("two", "02", json!({"f:y": {}}))]), "True", "02"),
    ];
    let expected = [
        "01 write one Update, version 5",
        "02 write one Update, version 6",
        "02 condition Ready became True (R)",
        "02 write two Update, version 7",
    ];
    assert_eq!(lines(&subject(&history, &NOTHING)), expected);
}

#[test]
fn the_end_is_told_when_it_was_asked_for() {
    let one = [entry("one", "01", json!({"f:x": {}}))];
    let mut history = [version(5, json!({"x": 1}), &one), version(6, json!({"x": 1}), &one)];
    history[1]["metadata"]["deletionTimestamp"] = at("40");
    history[1]["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    assert_eq!(
        lines(&subject(&history, &NOTHING)),
        ["01 write one Update, version 5", "10 deletion its end was asked for, version 6"]
    );
    let last = &history[1..];
    assert_eq!(lines(&subject(last, &NOTHING))[1], "10 deletion its end was asked for");
}

#[test]
fn a_server_says_from_where_on_it_keeps_changes() {
    let refused = |message: &str| oldest(&Trouble::Refused(json!({"message": message})));
    assert_eq!(refused("too old resource version: 1 (42)"), Some(42));
    assert_eq!(refused("no"), None);
}

#[test]
fn everything_is_on_one_axis() {
    let object = json!({
        "kind": "Deployment",
        "metadata": {
            "creationTimestamp": at("00"),
            "managedFields": [{"manager": "kubectl", "operation": "Update", "time": at("03"), "subresource": "status"}],
        },
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ok", "lastTransitionTime": at("05")}]},
    });
    let events = [
        json!({"reason": "Pulled", "message": "got it", "lastTimestamp": at("01"), "count": 2, "source": {"component": "node"}}),
    ];
    let traces = json!({"deployment": [
        {"key": "a/b", "started": at("02.5"), "tookSeconds": 0.0015, "outcome": {"result": "requeueAfter"}, "writes": [{}], "nextRunSeconds": 600.2},
        {"key": "a/c", "started": at("02")},
    ]});
    let subject = Subject { object: &object, events: &events, ..subject(&[], &traces) };
    let expected = "\
TIME                   WHAT        WHO          DETAIL
2026-01-01T00:00:00Z   created                  \n\
2026-01-01T00:00:01Z   event       node         Pulled: got it (x2)
2026-01-01T00:00:02Z   reconcile   deployment   took 1.5 ms, 1 write, runs again in 600 s
2026-01-01T00:00:03Z   write       kubectl      Update of status
2026-01-01T00:00:05Z   condition                Ready became True (Ok)
";
    assert_eq!(draw(moments(&subject)), expected);
}

#[test]
fn an_event_without_a_part_of_a_second_has_its_place_by_its_name() {
    let event =
        |name: &str| json!({"metadata": {"name": name}, "lastTimestamp": at("01"), "reason": "R", "message": "m"});
    let second = Timestamp::parse(at("01").as_str().unwrap()).unwrap().seconds;
    let place = |name: &str| happened(&event(name)).unwrap().at;
    assert_eq!(place(&format!("web.{:x}", second * 1_000_000_000 + 5)), (second, 5));
    for name in [format!("web.{:x}", (second + 1) * 1_000_000_000), "web.first".to_owned(), "web".to_owned()] {
        assert_eq!(place(&name), (second, bounds::LAST_PART), "{name}");
    }
}
