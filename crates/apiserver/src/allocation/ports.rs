//! Node ports: one number is one Service's on every node, whatever its protocol.

use std::collections::BTreeSet;

use serde_json::Value;
use setpoint_api::{BadValue, FieldError, Path, Status};
use setpoint_schema::Edit;
use setpoint_schema::builtin::core::service;

use super::{Pool, port_key, refuse};

/// First and last node port.
const FIRST: u16 = 30000;
const LAST: u16 = 32767;

/// Where ports are drawn from first: those below are for people who choose. (2768 ports / 32)
const DYNAMIC_FIRST: u16 = FIRST + 86;

/// Ports that a request has claimed so far.
pub(super) struct Claims<'a> {
    pool: &'a Pool<'a>,
    claimed: BTreeSet<u16>,
}

impl<'a> Claims<'a> {
    pub(super) fn new(pool: &'a Pool<'a>) -> Claims<'a> {
        Claims { pool, claimed: BTreeSet::new() }
    }

    /// Claims a port that the user asks for.
    fn ask(&mut self, port: i64) -> Result<(), String> {
        let within = u16::try_from(port).ok().filter(|port| (FIRST..=LAST).contains(port));
        let Some(port) = within else {
            let range = format!("{FIRST}-{LAST}");
            return Err(format!("provided port is not in the valid range. The range of valid ports is {range}"));
        };
        if !self.is_free(port) {
            return Err("provided port is already allocated".to_owned());
        }
        self.claimed.insert(port);
        Ok(())
    }

    /// Claims any port.
    fn draw(&mut self) -> Result<u16, &'static str> {
        let drawn = self.free_in(DYNAMIC_FIRST, LAST).or_else(|| self.free_in(FIRST, DYNAMIC_FIRST - 1));
        let port = drawn.ok_or("range is full")?;
        self.claimed.insert(port);
        Ok(port)
    }

    fn free_in(&self, first: u16, last: u16) -> Option<u16> {
        let count = last - first + 1;
        let start = u16::try_from(self.pool.below(u64::from(count))).unwrap_or(0);
        (0..count).map(|step| first + (start + step) % count).find(|port| self.is_free(*port))
    }

    fn is_free(&self, port: u16) -> bool {
        !self.claimed.contains(&port) && !self.pool.has(&port_key(port))
    }
}

/// The node ports that a Service names.
pub(super) fn node_ports(service: &Value) -> Vec<i64> {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    ports.filter_map(|port| port.number("nodePort")).filter(|port| *port != 0).collect()
}

fn is_on_nodes(service: &Value) -> bool {
    matches!(service["spec"].text("type"), "NodePort" | "LoadBalancer")
}

/// Gives a new Service its node ports. Ports of the same number (one per protocol) share theirs.
pub(super) fn assign_new(claims: &mut Claims<'_>, object: &mut Value) -> Result<(), Box<Status>> {
    if !is_on_nodes(object) {
        return Ok(());
    }
    let drawn_too = service::needs_node_ports(object);
    let mut ports = object["spec"]["ports"].as_array().cloned().unwrap_or_default();
    let mut shared: Vec<(i64, i64)> = Vec::new();
    for index in 0..ports.len() {
        let number = ports[index].number("port").unwrap_or(0);
        let own = ports[index].number("nodePort").unwrap_or(0);
        if own == 0 && !drawn_too {
            continue;
        }
        let node_port = match shared.iter().find(|(port, _)| *port == number) {
            Some((_, same)) if own == 0 || own == *same => *same,
            Some(_) => ask(claims, object, index, own)?,
            None => {
                let wanted = ports.iter().filter(|port| port.number("port") == Some(number));
                let wanted = wanted.filter_map(|port| port.number("nodePort")).find(|port| *port != 0);
                let found = match wanted {
                    Some(port) => ask(claims, object, index, port)?,
                    None => draw(claims)?,
                };
                shared.push((number, found));
                found
            }
        };
        ports[index].set("nodePort", node_port);
    }
    if !ports.is_empty() {
        object["spec"].set("ports", ports);
    }
    Ok(())
}

/// Gives a changed Service the node ports that it did not have.
pub(super) fn reassign(claims: &mut Claims<'_>, new: &mut Value, old: &Value) -> Result<(), Box<Status>> {
    if !is_on_nodes(new) {
        return Ok(());
    }
    let before = node_ports(old);
    let drawn_too = service::needs_node_ports(new);
    let count = new["spec"]["ports"].as_array().map_or(0, Vec::len);
    let mut asked: Vec<i64> = Vec::new();
    for index in 0..count {
        match new["spec"]["ports"][index].number("nodePort").unwrap_or(0) {
            0 if drawn_too => {
                let port = draw(claims)?;
                new["spec"]["ports"][index].set("nodePort", port);
            }
            0 => {}
            port if before.contains(&port) || asked.contains(&port) => {}
            port => asked.push(ask(claims, new, index, port)?),
        }
    }
    Ok(())
}

/// Gives a load balancer the port on which nodes tell their health, once it needs one.
pub(super) fn assign_health_check(
    claims: &mut Claims<'_>,
    new: &mut Value,
    old: Option<&Value>,
) -> Result<(), Box<Status>> {
    if !service::needs_health_check_port(new) || old.is_some_and(service::needs_health_check_port) {
        return Ok(());
    }
    match new["spec"].number("healthCheckNodePort").unwrap_or(0) {
        0 => {
            let port = claims.draw().map_err(|why| {
                Box::new(Status::internal_error(format!("failed to allocate a HealthCheck NodePort 0: {why}")))
            })?;
            new["spec"].set("healthCheckNodePort", port);
            Ok(())
        }
        port => claims.ask(port).map_err(|why| {
            let message = format!("failed to allocate requested HealthCheck NodePort {port}: {why}");
            Box::new(Status::internal_error(message))
        }),
    }
}

fn ask(claims: &mut Claims<'_>, object: &Value, index: usize, port: i64) -> Result<i64, Box<Status>> {
    if let Err(why) = claims.ask(port) {
        let path = Path::root("spec");
        let path = path.child("ports");
        let path = path.index(index);
        let value = BadValue::json(&port.into());
        refuse(object, vec![FieldError::invalid(&path.child("nodePort"), value, why)])?;
    }
    Ok(port)
}

fn draw(claims: &mut Claims<'_>) -> Result<i64, Box<Status>> {
    let failed = |why| Box::new(Status::internal_error(format!("failed to allocate a nodePort: {why}")));
    claims.draw().map(i64::from).map_err(failed)
}
