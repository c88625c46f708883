//! Every namespace has its service account, and tokens go with theirs.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use k8s_openapi::jiff::SignedDuration;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Process, Scenario, State};

use crate::process::{ROOT_CA, controllers, exhaust};
use crate::story::{create, expect, names, patch};

struct Accounts {
    name: &'static str,
    controller: &'static str,
    drive: for<'a> fn(&'a ControlPlane) -> BoxFuture<'a, ()>,
    outcome: fn(&State) -> Result<(), String>,
}

impl Scenario for Accounts {
    fn name(&self) -> &'static str {
        self.name
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, self.controller)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        (self.drive)(plane)
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        (self.outcome)(state)
    }
}

async fn found(plane: &ControlPlane, namespace: &str) {
    let namespaces: Api<Namespace> = Api::all(plane.client());
    let namespace = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
}

fn has_account(state: &State, namespace: &str) -> bool {
    state.object("", "serviceaccounts", namespace, "default").is_some()
}

#[test]
fn accounts_come_back() {
    exhaust(&Accounts {
        name: "service_account::accounts_come_back",
        controller: "serviceaccount-controller",
        drive: |plane| {
            async {
                found(plane, "one").await;
                found(plane, "two").await;
                plane.settle().await.unwrap();
                let accounts: Api<ServiceAccount> = Api::namespaced(plane.client(), "one");
                accounts.delete("default", &DeleteParams::default()).await.unwrap();
            }
            .boxed()
        },
        outcome: |state| {
            let lacking = ["one", "two", "default", "kube-system"];
            let lacking: Vec<_> = lacking.into_iter().filter(|namespace| !has_account(state, namespace)).collect();
            expect("namespaces without an account", lacking, Vec::<&str>::new())
        },
    })
    .assert();
}

#[test]
fn a_namespace_that_goes_gets_none() {
    exhaust(&Accounts {
        name: "service_account::a_namespace_that_goes_gets_none",
        controller: "serviceaccount-controller",
        drive: |plane| {
            async {
                found(plane, "going").await;
                plane.settle().await.unwrap();
                // Nobody runs here who would finish this, so the namespace is about to go for ever.
                let namespaces: Api<Namespace> = Api::all(plane.client());
                namespaces.delete("going", &DeleteParams::default()).await.unwrap();
                let accounts: Api<ServiceAccount> = Api::namespaced(plane.client(), "going");
                accounts.delete("default", &DeleteParams::default()).await.unwrap();
            }
            .boxed()
        },
        outcome: |state| expect("an account", has_account(state, "going"), false),
    })
    .assert();
}

#[test]
fn an_account_that_was_changed_stays_as_it_is() {
    exhaust(&Accounts {
        name: "service_account::an_account_that_was_changed_stays_as_it_is",
        controller: "serviceaccount-controller",
        drive: |plane| {
            async {
                plane.settle().await.unwrap();
                let accounts: Api<ServiceAccount> = Api::default_namespaced(plane.client());
                let quiet = Patch::Merge(json!({"automountServiceAccountToken": false}));
                accounts.patch("default", &PatchParams::default(), &quiet).await.unwrap();
            }
            .boxed()
        },
        outcome: |state| {
            let account = state.object("", "serviceaccounts", "default", "default").unwrap_or_default();
            expect("it", account["automountServiceAccountToken"].clone(), Value::Bool(false))
        },
    })
    .assert();
}

async fn token(plane: &ControlPlane, name: &str, kind: &str, account: &str, uid: &str) {
    let annotations = json!({"kubernetes.io/service-account.name": account, "kubernetes.io/service-account.uid": uid});
    create::<Secret>(plane, json!({"metadata": {"name": name, "annotations": annotations}, "type": kind})).await;
}

async fn account(plane: &ControlPlane, name: &str) -> String {
    create::<ServiceAccount>(plane, json!({"metadata": {"name": name}})).await;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(plane.client());
    accounts.get(name).await.unwrap().metadata.uid.unwrap()
}

const TOKEN: &str = "kubernetes.io/service-account-token";

fn secrets(state: &State) -> Vec<String> {
    names(&state.objects("", "secrets"))
}

#[test]
fn a_token_goes_with_its_account() {
    exhaust(&Accounts {
        name: "service_account::a_token_goes_with_its_account",
        controller: "serviceaccount-token-controller",
        drive: |plane| {
            async {
                let (robot, other) = (account(plane, "robot").await, account(plane, "other").await);
                token(plane, "of-robot", TOKEN, "robot", &robot).await;
                token(plane, "of-other", TOKEN, "other", &other).await;
                token(plane, "no-token", "Opaque", "robot", &robot).await;
                plane.settle().await.unwrap();
                expect("before", secrets(&plane.state()).len(), 3).unwrap();
                let accounts: Api<ServiceAccount> = Api::default_namespaced(plane.client());
                accounts.delete("robot", &DeleteParams::default()).await.unwrap();
            }
            .boxed()
        },
        outcome: |state| expect("secrets", secrets(state), ["no-token", "of-other"].map(str::to_owned).to_vec()),
    })
    .assert();
}

#[test]
fn a_token_of_an_earlier_account_of_the_name_goes() {
    exhaust(&Accounts {
        name: "service_account::a_token_of_an_earlier_account_of_the_name_goes",
        controller: "serviceaccount-token-controller",
        drive: |plane| {
            async {
                let earlier = account(plane, "robot").await;
                let accounts: Api<ServiceAccount> = Api::default_namespaced(plane.client());
                accounts.delete("robot", &DeleteParams::default()).await.unwrap();
                let later = account(plane, "robot").await;
                token(plane, "of-later", TOKEN, "robot", &later).await;
                token(plane, "of-earlier", TOKEN, "robot", &earlier).await;
            }
            .boxed()
        },
        outcome: |state| expect("secrets", secrets(state), vec!["of-later".to_owned()]),
    })
    .assert();
}

#[test]
fn a_token_of_nobody_goes_and_one_that_does_not_say_which_stays() {
    exhaust(&Accounts {
        name: "service_account::a_token_of_nobody_goes_and_one_that_does_not_say_which_stays",
        controller: "serviceaccount-token-controller",
        drive: |plane| {
            async {
                account(plane, "robot").await;
                let annotations = json!({"kubernetes.io/service-account.name": "robot"});
                let metadata = json!({"name": "of-any", "annotations": annotations});
                create::<Secret>(plane, json!({"metadata": metadata, "type": TOKEN})).await;
                token(plane, "of-nobody", TOKEN, "nobody", "fake").await;
            }
            .boxed()
        },
        outcome: |state| expect("secrets", secrets(state), vec!["of-any".to_owned()]),
    })
    .assert();
}

/// Everything that a Secret is to hold, as text.
fn held(state: &State, name: &str) -> Value {
    let secret = state.object("", "secrets", "default", name).unwrap_or_default();
    let annotation =
        |name: &str| secret["metadata"]["annotations"][format!("kubernetes.io/service-account.{name}")].clone();
    let data = |name: &str| {
        let found = secret["data"].get(name).cloned();
        let bytes: Option<ByteString> = found.and_then(|found| serde_json::from_value(found).ok());
        bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned())
    };
    json!([annotation("name"), annotation("uid"), data("namespace"), data("ca.crt"), data("token"), data("own")])
}

fn filled(state: &State, name: &str, account: &str, own: Value) -> Result<(), String> {
    let account_object = state.object("", "serviceaccounts", "default", account).unwrap_or_default();
    let uid = &account_object["metadata"]["uid"];
    let token = format!("the token of default/{account} in {name}");
    expect(name, held(state, name), json!([account, uid, "default", ROOT_CA, token, own]))
}

#[test]
fn a_secret_for_a_token_is_filled() {
    exhaust(&Accounts {
        name: "service_account::a_secret_for_a_token_is_filled",
        controller: "serviceaccount-token-controller",
        drive: |plane| {
            async {
                let robot = account(plane, "robot").await;
                let annotations = json!({"kubernetes.io/service-account.name": "robot"});
                let metadata = json!({"name": "of-any", "annotations": annotations});
                let secret = json!({"metadata": metadata, "type": TOKEN, "stringData": {"own": "kept"}});
                create::<Secret>(plane, secret).await;
                token(plane, "of-robot", TOKEN, "robot", &robot).await;
                token(plane, "opaque", "Opaque", "robot", &robot).await;
            }
            .boxed()
        },
        outcome: |state| {
            filled(state, "of-any", "robot", json!("kept"))?;
            filled(state, "of-robot", "robot", Value::Null)?;
            expect("what is of another type", held(state, "opaque")[4].clone(), Value::Null)
        },
    })
    .assert();
}

#[test]
fn what_is_taken_out_of_a_secret_for_a_token_comes_back() {
    exhaust(&Accounts {
        name: "service_account::what_is_taken_out_of_a_secret_for_a_token_comes_back",
        controller: "serviceaccount-token-controller",
        drive: |plane| {
            async {
                let robot = account(plane, "robot").await;
                for (name, changes) in [
                    ("no-token", json!({"token": null})),
                    ("no-namespace", json!({"namespace": null})),
                    ("other-authority", json!({"ca.crt": "b3RoZXI="})),
                    ("nothing", json!({"token": null, "namespace": null, "ca.crt": null})),
                ] {
                    token(plane, name, TOKEN, "robot", &robot).await;
                    plane.settle().await.unwrap();
                    patch::<Secret>(plane, name, json!({"data": changes})).await;
                }
            }
            .boxed()
        },
        outcome: |state| {
            let mut all = ["no-token", "no-namespace", "other-authority", "nothing"].into_iter();
            all.try_for_each(|name| filled(state, name, "robot", Value::Null))
        },
    })
    .assert();
}

#[test]
fn a_token_that_somebody_put_there_stays() {
    exhaust(&Accounts {
        name: "service_account::a_token_that_somebody_put_there_stays",
        controller: "serviceaccount-token-controller",
        drive: |plane| {
            async {
                account(plane, "robot").await;
                let annotations = json!({"kubernetes.io/service-account.name": "robot"});
                let metadata = json!({"name": "own", "annotations": annotations});
                let secret = json!({"metadata": metadata, "type": TOKEN, "stringData": {"token": "mine"}});
                create::<Secret>(plane, secret).await;
            }
            .boxed()
        },
        outcome: |state| {
            let held = held(state, "own");
            expect("it", json!([held[2], held[3], held[4]]), json!(["default", ROOT_CA, "mine"]))
        },
    })
    .assert();
}

#[test]
fn a_bootstrap_token_goes_when_its_time_is_over() {
    exhaust(&Accounts {
        name: "service_account::a_bootstrap_token_goes_when_its_time_is_over",
        controller: "token-cleaner-controller",
        drive: |plane| {
            async {
                let secrets: Api<Secret> = Api::namespaced(plane.client(), "kube-system");
                let (now, hour) = (plane.clock().wall(), SignedDuration::from_hours(1));
                for (id, end) in [("aaaaaa", Some(now + hour)), ("bbbbbb", Some(now + hour * 9)), ("cccccc", None)] {
                    let mut data = json!({"token-id": id, "token-secret": "0123456789abcdef"});
                    if let Some(end) = end {
                        data["expiration"] = json!(end.to_string());
                    }
                    let name = format!("bootstrap-token-{id}");
                    let token = json!({"metadata": {"name": name}, "type": "bootstrap.kubernetes.io/token", "stringData": data});
                    let token = serde_json::from_value(token).unwrap();
                    secrets.create(&PostParams::default(), &token).await.unwrap();
                }
                plane.advance(Duration::from_secs(2 * 3600)).await;
            }
            .boxed()
        },
        outcome: |state| {
            let left = names(&state.objects("", "secrets"));
            expect("tokens", left, vec!["bootstrap-token-bbbbbb".to_owned(), "bootstrap-token-cccccc".to_owned()])
        },
    })
    .assert();
}

async fn bootstrap_token(plane: &ControlPlane, id: &str, kind: &str, end: &str) {
    let secrets: Api<Secret> = Api::namespaced(plane.client(), "kube-system");
    let data = json!({"token-id": id, "token-secret": "0123456789abcdef", "expiration": end});
    let token = json!({"metadata": {"name": format!("bootstrap-token-{id}")}, "type": kind, "stringData": data});
    secrets.create(&PostParams::default(), &serde_json::from_value(token).unwrap()).await.unwrap();
}

#[test]
fn a_bootstrap_token_that_gets_more_time_stays() {
    exhaust(&Accounts {
        name: "service_account::a_bootstrap_token_that_gets_more_time_stays",
        controller: "token-cleaner-controller",
        drive: |plane| {
            async {
                let (now, hour) = (plane.clock().wall(), SignedDuration::from_hours(1));
                bootstrap_token(plane, "aaaaaa", "bootstrap.kubernetes.io/token", &(now + hour).to_string()).await;
                plane.advance(Duration::from_secs(1800)).await;
                let later = Patch::Merge(json!({"stringData": {"expiration": (now + hour * 99).to_string()}}));
                let secrets: Api<Secret> = Api::namespaced(plane.client(), "kube-system");
                secrets.patch("bootstrap-token-aaaaaa", &PatchParams::default(), &later).await.unwrap();
                plane.advance(Duration::from_secs(2 * 3600)).await;
            }
            .boxed()
        },
        outcome: |state| {
            expect("tokens", names(&state.objects("", "secrets")), vec!["bootstrap-token-aaaaaa".to_owned()])
        },
    })
    .assert();
}

#[test]
fn a_bootstrap_token_without_a_readable_end_goes_and_other_secrets_stay() {
    exhaust(&Accounts {
        name: "service_account::a_bootstrap_token_without_a_readable_end_goes_and_other_secrets_stay",
        controller: "token-cleaner-controller",
        drive: |plane| {
            async {
                bootstrap_token(plane, "aaaaaa", "bootstrap.kubernetes.io/token", "tomorrow").await;
                bootstrap_token(plane, "bbbbbb", "Opaque", "2020-01-01T00:00:00Z").await;
            }
            .boxed()
        },
        outcome: |state| {
            expect("tokens", names(&state.objects("", "secrets")), vec!["bootstrap-token-bbbbbb".to_owned()])
        },
    })
    .assert();
}
