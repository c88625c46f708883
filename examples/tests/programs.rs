//! The programs, as a user runs them: against a real server, found by its kubeconfig.

use std::fmt::Debug;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::TryStreamExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, CustomResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use setpoint_examples::configmap::{Greeting, GreetingSpec, TEXT};
use setpoint_examples::machine::{Machine, MachineSpec};
use setpoint_examples::mariadb::MariaDB;
use setpoint_examples::thermostat::{AT_FIRST, Thermostat, ThermostatSpec};

/// A process that ends with the test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Running {
        Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it can be run"))
    }

    /// Asks it to stop, and tells whether it did so in order.
    fn stop(mut self) -> bool {
        let asked = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        assert!(asked.expect("kill is there").success());
        self.0.wait().expect("it ends").success()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The server's binary lies beside those of the examples; built first if only these were.
fn server_binary() -> PathBuf {
    let binary = Path::new(env!("CARGO_BIN_EXE_thermostat")).with_file_name("setpoint");
    if !binary.exists() {
        let built = Command::new(env!("CARGO")).args(["build", "-p", "setpoint"]).status();
        assert!(built.expect("cargo runs").success() && binary.exists(), "there is no {}", binary.display());
    }
    binary
}

fn start_server(data: &Path) -> Running {
    let mut command = Command::new(server_binary());
    let mut server = Running::start(command.args(["server", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data));
    let mut line = String::new();
    // Ends in any case: a server that does not get ready gives up by itself.
    BufReader::new(server.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    assert!(line.starts_with("ready "), "not ready: {line:?}");
    server
}

async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Follows an object until it is as wanted. An object that never is fails the test.
async fn until<K>(api: &Api<K>, name: &str, wanted: impl Fn(&K) -> bool)
where
    K: Clone + Debug + DeserializeOwned + kube::Resource,
{
    let followed = async {
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        // From version 0 on: what is there comes first.
        let mut events = pin!(api.watch(&params, "0").await.unwrap());
        while let Some(event) = events.try_next().await.unwrap() {
            if matches!(event, WatchEvent::Added(object) | WatchEvent::Modified(object) if wanted(&object)) {
                return;
            }
        }
        panic!("the watch of {name} ended");
    };
    tokio::time::timeout(Duration::from_secs(120), followed)
        .await
        .unwrap_or_else(|_| panic!("{name} never was as wanted"));
}

/// Waits until a program has installed its kind.
async fn defined<K: CustomResourceExt>(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let is_established = |definition: &CustomResourceDefinition| {
        let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|one| one.type_ == "Established" && one.status == "True")
    };
    until(&definitions, K::crd_name(), is_established).await;
}

async fn create<K: Clone + Debug + DeserializeOwned + serde::Serialize>(api: &Api<K>, object: &K) {
    api.create(&PostParams::default(), object).await.unwrap();
}

#[tokio::test]
async fn the_programs_run_against_a_real_server() {
    let data = tempfile::tempdir().unwrap();
    let server = start_server(data.path());
    let kubeconfig = data.path().join("admin.kubeconfig");
    let programs: Vec<Running> = [
        env!("CARGO_BIN_EXE_thermostat"),
        env!("CARGO_BIN_EXE_configmap"),
        env!("CARGO_BIN_EXE_mariadb"),
        env!("CARGO_BIN_EXE_machine"),
    ]
    .map(|program| Running::start(Command::new(program).env("KUBECONFIG", &kubeconfig)))
    .into();
    let client = client(&kubeconfig).await;
    thermostat(&client).await;
    greeting(&client).await;
    database(&client).await;
    machine(&client).await;
    for program in programs {
        assert!(program.stop(), "a program did not end in order");
    }
    assert!(server.stop());
}

async fn thermostat(client: &Client) {
    defined::<Thermostat>(client).await;
    let thermostats: Api<Thermostat> = Api::default_namespaced(client.clone());
    create(&thermostats, &Thermostat::new("kitchen", ThermostatSpec { target: 21 })).await;
    let is_known = |kitchen: &Thermostat| kitchen.status.as_ref().is_some_and(|status| status.temperature >= AT_FIRST);
    until(&thermostats, "kitchen", is_known).await;
}

async fn greeting(client: &Client) {
    defined::<Greeting>(client).await;
    let (greetings, maps): (Api<Greeting>, Api<ConfigMap>) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
    create(&greetings, &Greeting::new("hello", GreetingSpec { text: "hello".to_owned() })).await;
    until(&maps, "hello", |map| map.data.as_ref().is_some_and(|data| data[TEXT] == "hello")).await;
}

/// The server has no controllers: the test says that the servers of the database run.
async fn database(client: &Client) {
    defined::<MariaDB>(client).await;
    let databases: Api<MariaDB> = Api::default_namespaced(client.clone());
    let shop = json!({
        "apiVersion": "example.com/v1", "kind": "MariaDB", "metadata": {"name": "shop"},
        "spec": {"image": "mariadb:11.4", "replicas": 1, "storage": "1Gi"},
    });
    create(&databases, &serde_json::from_value(shop).unwrap()).await;
    let is = |phase: &'static str| {
        move |database: &MariaDB| database.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some(phase))
    };
    until(&databases, "shop", is("Creating")).await;
    let sets: Api<StatefulSet> = Api::default_namespaced(client.clone());
    until(&sets, "shop", |_| true).await;
    let status = json!({"status": {"observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1}});
    sets.patch_status("shop", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    until(&databases, "shop", is("Running")).await;
    Api::<Secret>::default_namespaced(client.clone()).get("shop-root").await.unwrap();
    Api::<Service>::default_namespaced(client.clone()).get("shop").await.unwrap();
}

async fn machine(client: &Client) {
    defined::<Machine>(client).await;
    let machines: Api<Machine> = Api::default_namespaced(client.clone());
    create(&machines, &Machine::new("web", MachineSpec { image: "web:1".to_owned(), cores: 2 })).await;
    let is_at_work = |machine: &Machine| {
        let status = machine.status.clone().unwrap_or_default();
        status.phase.as_deref() == Some("Provisioning") && status.id.is_some()
    };
    until(&machines, "web", is_at_work).await;
    machines.delete("web", &DeleteParams::default()).await.unwrap();
    // It is still there: its finalizer waits for the cloud.
    let goes = |machine: &Machine| machine.metadata.deletion_timestamp.is_some();
    until(&machines, "web", goes).await;
}
