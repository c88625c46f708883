//! How many pods a rollout may have too many and too few.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The bounds of a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many pods there should be.
    pub replicas: i64,
    /// How many more there may be.
    pub surge: i64,
    /// How many of them need not be available.
    pub unavailable: i64,
    /// Whether pods are replaced step by step.
    pub is_rolling: bool,
}

impl Bounds {
    pub fn of(deployment: &Deployment) -> Bounds {
        let spec = deployment.spec.as_ref();
        let replicas = i64::from(spec.and_then(|spec| spec.replicas).unwrap_or(1)).max(0);
        let strategy = spec.and_then(|spec| spec.strategy.as_ref());
        let is_rolling = strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("Recreate");
        if !is_rolling {
            return Bounds { replicas, surge: 0, unavailable: 0, is_rolling };
        }
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let surge = scaled(rolling.and_then(|rolling| rolling.max_surge.as_ref()), replicas, 99);
        let unavailable = scaled(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), replicas, 0);
        // Rounding can leave no room at all, and surge may not work for lack of quota.
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        Bounds { replicas, surge, unavailable: unavailable.min(replicas), is_rolling }
    }

    /// Most pods at any time.
    pub fn most(&self) -> i64 {
        self.replicas.saturating_add(self.surge)
    }

    /// Fewest available pods at any time.
    pub fn fewest(&self) -> i64 {
        self.replicas - self.unavailable
    }
}

/// A number, or a share of all; what can't be read is none. `round` of 99 rounds up.
fn scaled(amount: Option<&IntOrString>, all: i64, round: i64) -> i64 {
    match amount {
        None => 0,
        Some(IntOrString::Int(amount)) => i64::from(*amount).max(0),
        Some(IntOrString::String(text)) => {
            let percent = text.strip_suffix('%').and_then(|percent| percent.parse::<i32>().ok()).unwrap_or(0);
            (i64::from(percent.max(0)) * all + round) / 100
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(replicas: i32, surge: Value, unavailable: Value, expected: (i64, i64)) {
        let rolling = json!({"maxSurge": surge, "maxUnavailable": unavailable});
        let spec =
            json!({"replicas": replicas, "selector": {}, "template": {}, "strategy": {"rollingUpdate": rolling}});
        let bounds = Bounds::of(&serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap());
        assert_eq!((bounds.surge, bounds.unavailable), expected, "{replicas} {surge} {unavailable}");
        assert!(bounds.most() > bounds.fewest() || replicas == 0, "a rollout can always go on");
    }

    #[test]
    fn surge_is_rounded_up_and_unavailable_down_and_one_of_them_has_room() {
        check(10, json!("25%"), json!("25%"), (3, 2));
        check(4, json!("25%"), json!("25%"), (1, 1));
        check(1, json!("25%"), json!("25%"), (1, 0));
        check(2, json!(0), json!("1%"), (0, 1));
        check(3, json!(2), json!(7), (2, 3));
        check(5, json!("100%"), json!("0%"), (5, 0));
        check(0, json!(1), json!(1), (1, 0));
        check(i32::MAX, json!("100%"), json!(0), (i64::from(i32::MAX), 0));
        check(3, json!("many"), json!("-5%"), (0, 1));
    }

    #[test]
    fn recreate_has_no_bounds_but_the_number_itself() {
        let spec = json!({"replicas": 3, "selector": {}, "template": {}, "strategy": {"type": "Recreate"}});
        let bounds = Bounds::of(&serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap());
        assert_eq!(bounds, Bounds { replicas: 3, surge: 0, unavailable: 0, is_rolling: false });
    }
}
