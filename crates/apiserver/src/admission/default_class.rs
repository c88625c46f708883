//! Default classes: a claim without a storage class and an ingress without a class get the one that is marked.

use serde_json::Value;
use setpoint_schema::Edit;

use super::all;
use crate::call::Call;

/// Gives a claim the default storage class.
pub(super) fn admit_claim(call: &Call<'_>, claim: &mut Value) {
    let beta = claim.find(&["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]).is_some();
    if beta || claim.find(&["spec", "storageClassName"]).is_some() {
        return;
    }
    let marks = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    if let Some(name) = newest_marked(call, "storage.k8s.io", "storageclasses", &marks) {
        claim.ensure("spec").set("storageClassName", name);
    }
}

/// Gives an ingress the default class.
pub(super) fn admit_ingress(call: &Call<'_>, ingress: &mut Value) {
    let named = ingress.find(&["metadata", "annotations", "kubernetes.io/ingress.class"]).is_some();
    if named || ingress.find(&["spec", "ingressClassName"]).is_some() {
        return;
    }
    let marks = ["ingressclass.kubernetes.io/is-default-class"];
    if let Some(name) = newest_marked(call, "networking.k8s.io", "ingressclasses", &marks) {
        ingress.ensure("spec").set("ingressClassName", name);
    }
}

/// Of several defaults the newest, then the first by name.
fn newest_marked(call: &Call<'_>, group: &str, plural: &str, marks: &[&str]) -> Option<String> {
    let marked = all(call, group, plural).into_iter().filter(|class| {
        let annotations = &class["metadata"]["annotations"];
        marks.iter().any(|mark| annotations.text(mark) == "true")
    });
    let newest = marked.min_by(|a, b| {
        let created = |class: &Value| class["metadata"].text("creationTimestamp").to_owned();
        created(b).cmp(&created(a)).then_with(|| a["metadata"].text("name").cmp(b["metadata"].text("name")))
    });
    newest.map(|class| class["metadata"].text("name").to_owned())
}
