//! What a database is made of. Pure: from the object to its children.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::ResourceExt;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use setpoint_runtime::owners;

use super::MariaDB;

/// The port of MySQL.
const PORT: u16 = 3306;

/// Finds all children of a database.
pub(super) fn selector(database: &MariaDB) -> String {
    format!("app.kubernetes.io/name=mariadb,app.kubernetes.io/instance={}", database.name_any())
}

pub(super) fn secret_name(database: &MariaDB) -> String {
    format!("{}-root", database.name_any())
}

/// The password. It is created, never applied: it must not change.
pub(super) fn secret(database: &MariaDB, password: &str) -> Secret {
    let mut secret: Secret = object(json!({
        "metadata": {"name": secret_name(database), "labels": labels(database)},
        "stringData": {"password": password},
    }));
    secret.metadata.owner_references = owners::controller_reference(database).map(|owner| vec![owner]);
    secret
}

pub(super) fn config(database: &MariaDB) -> ConfigMap {
    object(json!({
        "metadata": {"name": config_name(database), "labels": labels(database)},
        "data": {"server.cnf": settings(database)},
    }))
}

pub(super) fn service(database: &MariaDB) -> Service {
    object(json!({
        "metadata": {"name": database.name_any(), "labels": labels(database)},
        // Without an address of its own: each server has a name.
        "spec": {"clusterIP": "None", "selector": labels(database), "ports": [{"name": "mysql", "port": PORT}]},
    }))
}

pub(super) fn stateful_set(database: &MariaDB) -> StatefulSet {
    let name = database.name_any();
    let password = json!({"secretKeyRef": {"name": secret_name(database), "key": "password"}});
    object(json!({
        "metadata": {"name": name, "labels": labels(database)},
        "spec": {
            "serviceName": name,
            "replicas": database.spec.replicas,
            "selector": {"matchLabels": labels(database)},
            "template": {
                // Other settings are another template: that is what restarts the servers.
                "metadata": {"labels": labels(database), "annotations": {"example.com/settings": settings(database)}},
                "spec": {
                    "containers": [{
                        "name": "mariadb",
                        "image": database.spec.image,
                        "env": [{"name": "MARIADB_ROOT_PASSWORD", "valueFrom": password}],
                        "ports": [{"name": "mysql", "containerPort": PORT}],
                        "volumeMounts": [
                            {"name": "data", "mountPath": "/var/lib/mysql"},
                            {"name": "config", "mountPath": "/etc/mysql/conf.d"},
                        ],
                    }],
                    "volumes": [{"name": "config", "configMap": {"name": config_name(database)}}],
                },
            },
            "volumeClaimTemplates": [{
                "metadata": {"name": "data", "labels": labels(database)},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": database.spec.storage}},
                },
            }],
        },
    }))
}

fn config_name(database: &MariaDB) -> String {
    format!("{}-config", database.name_any())
}

fn settings(database: &MariaDB) -> String {
    let lines = database.spec.config.iter().map(|(name, value)| format!("{name} = {value}\n"));
    std::iter::once("[mariadbd]\n".to_owned()).chain(lines).collect()
}

fn labels(database: &MariaDB) -> Value {
    json!({"app.kubernetes.io/name": "mariadb", "app.kubernetes.io/instance": database.name_any()})
}

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("what is written here fits its type")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mariadb::MariaDBSpec;

    fn database() -> MariaDB {
        let spec =
            json!({"image": "mariadb:11.4", "replicas": 2, "storage": "1Gi", "config": {"max_connections": "9"}});
        MariaDB::new("shop", serde_json::from_value::<MariaDBSpec>(spec).unwrap())
    }

    #[test]
    fn settings_are_a_file_and_part_of_the_template() {
        let (config, set) = (config(&database()), stateful_set(&database()));
        let file = &config.data.unwrap()["server.cnf"];
        assert_eq!(file, "[mariadbd]\nmax_connections = 9\n");
        let template = set.spec.unwrap().template.metadata.unwrap();
        assert_eq!(&template.annotations.unwrap()["example.com/settings"], file);
    }

    #[test]
    fn children_are_found_by_the_selector() {
        let database = database();
        let metadata = [config(&database).metadata, service(&database).metadata, stateful_set(&database).metadata];
        for labels in metadata.map(|metadata| metadata.labels.unwrap()) {
            let pairs = labels.iter().map(|(key, value)| format!("{key}={value}"));
            assert!(pairs.into_iter().all(|pair| selector(&database).contains(&pair)));
        }
    }
}
