//! Every namespace has its service account.

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Process, Scenario, State};

use crate::process::{controllers, exhaust};

/// Two namespaces are made, and somebody deletes the account of one.
struct AccountsComeBack;

impl Scenario for AccountsComeBack {
    fn name(&self) -> &'static str {
        "service_account::accounts_come_back"
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, "serviceaccount-controller")
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let namespaces: Api<Namespace> = Api::all(plane.client());
            for name in ["one", "two"] {
                let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
                namespaces.create(&PostParams::default(), &namespace).await.unwrap();
            }
            plane.settle().await.unwrap();
            let accounts: Api<ServiceAccount> = Api::namespaced(plane.client(), "one");
            accounts.delete("default", &DeleteParams::default()).await.unwrap();
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        for namespace in ["one", "two", "default", "kube-system"] {
            let account: Option<Value> = state.object("", "serviceaccounts", namespace, "default");
            account.ok_or_else(|| format!("{namespace} has no account"))?;
        }
        Ok(())
    }
}

#[test]
fn accounts_come_back() {
    exhaust(&AccountsComeBack).assert();
}
