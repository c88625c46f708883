//! `/token`: a new token for a service account.

use serde_json::{Value, json};
use setpoint_api::{FieldError, GroupKind, GroupResource, GroupVersion, Path, Status};
use setpoint_schema::Edit;

use super::{Claims, ISSUER, Named, Signer, Subject};
use crate::call::Call;
use crate::objects;
use crate::server::Inner;

/// How long a token lasts if nobody says.
const SECONDS_DEFAULT: i64 = 3600;

/// Shorter tokens would be renewed all the time.
const SECONDS_MIN: i64 = 600;

/// The lifetime that pods ask for. Their programs may not read the file again, so such a token is good for longer, and
/// says from when on its use is to be noted.
const POD_SECONDS: i64 = 3607;

/// How much longer.
const POD_SECONDS_EXTENDED: i64 = 365 * 24 * 3600;

/// Answers a TokenRequest for the account that the call names.
pub(crate) fn issue(call: &mut Call<'_>, mut request: Value) -> Result<Value, Box<Status>> {
    let server = call.server;
    let Some(signer) = server.signer.get() else {
        return Err(Box::new(Status::internal_error("this server has no key to sign tokens with")));
    };
    let (name, namespace) = (call.object_name().to_owned(), call.namespace.unwrap_or("").to_owned());
    check_names(&request, &name, &namespace)?;
    let account = find(call.server, "serviceaccounts", Some(&namespace), &name)?;
    let uid = account["metadata"].text("uid").to_owned();
    complete(call, &mut request, &account)?;
    let seconds = check_lifetime(&request)?;
    let now = server.clock.seconds();
    let mut claims = Claims {
        aud: texts(&request["spec"]["audiences"]),
        exp: now + seconds,
        iat: now,
        iss: ISSUER.to_owned(),
        jti: server.chance.uid(),
        kubernetes: Subject {
            namespace: namespace.clone(),
            node: None,
            pod: None,
            secret: None,
            serviceaccount: Named { name: name.clone(), uid },
            warnafter: None,
        },
        nbf: now,
        sub: format!("system:serviceaccount:{namespace}:{name}"),
    };
    bind(call, &request["spec"]["boundObjectRef"], &mut claims)?;
    extend(&mut claims, seconds);
    sign(signer, &claims, &mut request, now + seconds)?;
    Ok(request)
}

fn sign(signer: &Signer, claims: &Claims, request: &mut Value, until: i64) -> Result<(), Box<Status>> {
    let token = signer.sign(claims);
    let token =
        token.map_err(|error| Box::new(Status::internal_error(format!("failed to generate token: {error}"))))?;
    let until = setpoint_api::time::format_rfc3339(until);
    request.set("status", json!({"token": token, "expirationTimestamp": until}));
    Ok(())
}

/// The body may repeat the account's name and namespace, not contradict them.
fn check_names(request: &Value, name: &str, namespace: &str) -> Result<(), Box<Status>> {
    let metadata = Path::root("metadata");
    for (field, wanted, why) in [
        ("name", name, "must match the service account name if specified"),
        ("namespace", namespace, "must match the service account namespace if specified"),
    ] {
        let given = request["metadata"].text(field);
        if !given.is_empty() && given != wanted {
            return Err(invalid(name, FieldError::invalid(&metadata.child(field), given, why)));
        }
    }
    Ok(())
}

/// Fills in what the request left out, from the account.
fn complete(call: &Call<'_>, request: &mut Value, account: &Value) -> Result<(), Box<Status>> {
    let uid = account["metadata"].text("uid");
    let given = request["metadata"].text("uid");
    if !given.is_empty() && given != uid {
        let why =
            format!("the UID in the token request ({given}) does not match the UID of the service account ({uid})");
        let requests = GroupResource::new("authentication.k8s.io", "TokenRequest");
        return Err(Box::new(Status::conflict(&requests, call.object_name(), why)));
    }
    let metadata = request.ensure("metadata");
    for field in ["name", "namespace", "uid"] {
        metadata.set(field, account["metadata"].text(field));
    }
    metadata.set("creationTimestamp", call.server.clock.timestamp());
    let spec = request.ensure("spec");
    if texts(&spec["audiences"]).is_empty() {
        spec.set("audiences", json!([ISSUER]));
    }
    if !spec.has("expirationSeconds") {
        spec.set("expirationSeconds", SECONDS_DEFAULT);
    }
    Ok(())
}

fn check_lifetime(request: &Value) -> Result<i64, Box<Status>> {
    let seconds = request["spec"].number("expirationSeconds").unwrap_or(0);
    let why = match seconds {
        ..SECONDS_MIN => "may not specify a duration less than 10 minutes",
        4_294_967_297.. => "may not specify a duration larger than 2^32 seconds",
        _ => return Ok(seconds),
    };
    Err(invalid("", FieldError::invalid(&Path::root("spec").child("expirationSeconds"), seconds, why)))
}

fn invalid(name: &str, error: FieldError) -> Box<Status> {
    Box::new(Status::invalid(&GroupKind::new("authentication.k8s.io", "TokenRequest"), name, &[error]))
}

/// Ties the token to the object that it names: it is good for as long as that is there.
fn bind(call: &Call<'_>, reference: &Value, claims: &mut Claims) -> Result<(), Box<Status>> {
    if reference.is_null() {
        return Ok(());
    }
    let (kind, name) = (reference.text("kind"), reference.text("name"));
    let version: GroupVersion = reference.text("apiVersion").parse().unwrap_or_else(|_| GroupVersion::new("", ""));
    if name.is_empty() && matches!((&*version.group, kind), ("", "Pod" | "Node" | "Secret")) {
        return Err(Box::new(Status::bad_request("Name parameter required.")));
    }
    let namespace = call.namespace;
    let subject = &mut claims.kubernetes;
    let bound = match (&*version.group, kind) {
        ("", "Pod") => {
            let pod = find(call.server, "pods", namespace, name)?;
            if pod["spec"].text("serviceAccountName") != call.object_name() {
                let account = call.object_name();
                return Err(Box::new(Status::bad_request(format!(
                    "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
                ))));
            }
            subject.node = node_of(call, &pod);
            &mut *subject.pod.insert(named(&pod))
        }
        ("", "Node") => &mut *subject.node.insert(named(&find(call.server, "nodes", None, name)?)),
        ("", "Secret") => &mut *subject.secret.insert(named(&find(call.server, "secrets", namespace, name)?)),
        (group, kind) => {
            let message = format!("cannot bind token to object of type {group}/{}, Kind={kind}", version.version);
            return Err(Box::new(Status::bad_request(message)));
        }
    };
    match reference.text("uid") {
        "" => Ok(()),
        uid if uid == bound.uid => Ok(()),
        uid => {
            let why = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            Err(Box::new(Status::conflict(&GroupResource::new("", kind), name, why)))
        }
    }
}

/// The node of a pod, by name alone if it isn't there.
fn node_of(call: &Call<'_>, pod: &Value) -> Option<Named> {
    let name = pod["spec"].text("nodeName");
    if name.is_empty() {
        return None;
    }
    let gone = || Named { name: name.to_owned(), uid: String::new() };
    Some(find(call.server, "nodes", None, name).map_or_else(|_| gone(), |node| named(&node)))
}

fn named(object: &Value) -> Named {
    let metadata = &object["metadata"];
    Named { name: metadata.text("name").to_owned(), uid: metadata.text("uid").to_owned() }
}

fn extend(claims: &mut Claims, seconds: i64) {
    let is_for_pod = claims.kubernetes.pod.is_some() && claims.aud.iter().all(|audience| audience == ISSUER);
    if is_for_pod && seconds == POD_SECONDS {
        claims.kubernetes.warnafter = Some(claims.exp);
        claims.exp = claims.iat + POD_SECONDS_EXTENDED;
    }
}

pub(super) fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// An object of the core group.
pub(super) fn find(server: &Inner, plural: &str, namespace: Option<&str>, name: &str) -> Result<Value, Box<Status>> {
    let resource = GroupResource::new("", plural);
    match server.store.snapshot().get(&resource, namespace, name) {
        Some(object) => Ok(objects::value(&object)),
        None => Err(Box::new(Status::not_found(&resource, name))),
    }
}
