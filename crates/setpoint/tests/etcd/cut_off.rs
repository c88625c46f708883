//! A server whose network to etcd is gone, while clients still reach it: it says so, passes nothing stale for fresh, and is back by itself once
//! the network is. Another server goes on meanwhile.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};

use crate::apart::{self, Apart, Cut, FIRST_CLIENT};
use crate::config_map;
use crate::parts::{PATIENCE, until};
use crate::server::Server;

/// Members, so that none of what is seen has to do with an election.
const MEMBERS: usize = 3;

/// A server in a namespace of its own.
fn start(cluster: &Apart, at: usize, data: &Path) -> Server {
    let members: Vec<String> =
        cluster.endpoints(0).iter().map(|member| format!("{}:{}", member.host, member.port)).collect();
    let store = format!("etcd://{}", members.join(","));
    let (child, _) = cluster.add_client(FIRST_CLIENT + at, |address| {
        let mut command = apart::placed(Path::new(env!("CARGO_BIN_EXE_setpoint")));
        command.args(["server", "--store", &store, "--listen", &format!("{address}:6443"), "--data-dir"]).arg(data);
        command.env_remove("SETPOINT_LOG").stdout(Stdio::piped());
        command
    });
    Server::adopt(child, data)
}

/// What a server says to a request, status line and headers first, in small letters. Clients would try again where they are told to.
fn said(server: &Server, method: &str, path: &str) -> String {
    let url = format!("{}{path}", server.url());
    let answer =
        Command::new("curl").args(["-sSki", "--max-time", "30", "-X", method, "-d", "", &url]).output().unwrap();
    String::from_utf8(answer.stdout).unwrap().to_lowercase()
}

async fn text(client: &Client, path: &str) -> kube::Result<String> {
    client.request_text(http::Request::get(path).body(Vec::new()).unwrap()).await
}

#[test]
fn a_server_that_is_cut_off_from_etcd_says_so_and_comes_back_by_itself_while_another_goes_on() {
    let name = "cut_off::a_server_that_is_cut_off_from_etcd_says_so_and_comes_back_by_itself_while_another_goes_on";
    if apart::inside(name) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.unwrap().block_on(cut_off());
    }
}

async fn cut_off() {
    let (cluster, folder) = (Apart::start(MEMBERS), tempfile::tempdir().unwrap());
    let data = ["cut", "other"].map(|name| folder.path().join(name));
    let [cut, other] = [0, 1].map(|at| start(&cluster, at, &data[at]));
    let (cut_client, other_client) = (cut.client().await, other.client().await);
    let maps = [&cut_client, &other_client].map(|client| Api::<ConfigMap>::default_namespaced(client.clone()));
    maps[0].create(&PostParams::default(), &config_map("before")).await.unwrap();
    let from = maps[0].list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    // It is open all the time; what it tells is looked at in the end.
    let watching = maps[0].watch(&WatchParams::default().timeout(120), &from).await.unwrap();

    cluster.cut(FIRST_CLIENT, Cut::Clients);
    until("not ready", PATIENCE, async || text(&cut_client, "/readyz").await.err()).await;
    let why = text(&cut_client, "/readyz/etcd").await.unwrap_err().to_string();
    assert!(why.contains("can't be reached") || why.contains("lost") || why.contains("in time"), "{why}");
    // The other one goes on, and what it is told is not what this one would know.
    for n in 0..10 {
        maps[1].create(&PostParams::default(), &config_map(&format!("meanwhile-{n}"))).await.unwrap();
    }
    assert_eq!(text(&other_client, "/readyz").await.unwrap(), "ok");
    let all = "/api/v1/namespaces/default/configmaps";
    for (method, path) in [
        ("GET", all.to_owned()),
        ("GET", format!("{all}/before")),
        ("GET", format!("{all}/meanwhile-0")),
        ("POST", all.to_owned()),
        ("DELETE", format!("{all}/before")),
    ] {
        let answer = said(&cut, method, &path);
        let is_told = answer.starts_with("http/2 503") && answer.contains("retry-after: 1");
        assert!(is_told, "{method} {path} is neither refused nor put off: {answer}");
    }
    // Whoever is content with any version gets the one that it has, and sees which.
    let any = ListParams { resource_version: Some("0".to_owned()), ..ListParams::default() };
    let known = maps[0].list(&any).await.unwrap();
    assert_eq!(known.items.len(), 1);
    let number = |text: &str| text.parse::<u64>().unwrap();
    let newest = maps[1].list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    assert!(number(&known.metadata.resource_version.unwrap()) < number(&newest));

    cluster.heal(FIRST_CLIENT, Cut::Clients);
    until("ready again", PATIENCE, async || text(&cut_client, "/readyz").await.ok()).await;
    assert_eq!(maps[0].get("meanwhile-9").await.unwrap().name_any(), "meanwhile-9");
    assert_eq!(maps[0].list(&ListParams::default()).await.unwrap().items.len(), 11);
    maps[0].create(&PostParams::default(), &config_map("after")).await.unwrap();
    assert_eq!(maps[1].get("after").await.unwrap().name_any(), "after");
    // Who watched it all the time has missed nothing, and was told nothing twice.
    let mut events = watching.boxed();
    let mut told = Vec::new();
    while told.last().is_none_or(|name| name != "after") {
        let event = tokio::time::timeout(Duration::from_secs(30), events.try_next()).await.expect("it is told");
        match event.unwrap() {
            Some(WatchEvent::Added(map)) => told.push(map.name_any()),
            Some(WatchEvent::Bookmark(_)) => {}
            event => panic!("{event:?} after {told:?}"),
        }
    }
    let expected: Vec<String> = (0..10).map(|n| format!("meanwhile-{n}")).chain(["after".to_owned()]).collect();
    assert_eq!(told, expected);
    drop((cut, other));
}
