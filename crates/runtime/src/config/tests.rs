//! Which source wins, and what is said about what is wrong.

use std::time::Duration;

use super::*;

fn environment(variables: &[(&str, &str)]) -> Vec<(String, String)> {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn check_error(sources: Sources, expected: &str) {
    assert_eq!(Config::load(&sources).unwrap_err().to_string(), expected);
}

#[test]
fn later_sources_win_and_a_controllers_own_wins_over_all() {
    let file = r"
workers: 2
queue: {qps: 1.5, maxRetries: 3, baseDelay: 10ms}
reconcile:
cache: {streamingLists: false}
controllers:
  web-app:
    workers: 4
    queue: {maxRetries: null}
";
    let variables = [
        ("SHOP_WORKERS", "5"),
        ("SHOP_CONTROLLERS_WEB_APP_CACHE_PAGE_SIZE", "50"),
        ("SHOP_LOG_LEVEL", "debug"),
        ("PATH", "/bin"),
    ];
    let flags = ["--reconcile.resyncPeriod=10m", "--cache.labelSelector=app in (a,b)"].map(str::to_owned);
    let sources = Sources::new().flags(flags).file(file).environment("SHOP", environment(&variables));
    let config = Config::load(&sources).unwrap();
    let (all, own) = (config.of("other"), config.of("web-app"));
    assert_eq!((all.workers, own.workers), (5, 4));
    assert_eq!((all.queue.max_retries, own.queue.max_retries), (Some(3), None));
    assert_eq!((all.cache.page_size, own.cache.page_size), (500, 50));
    assert_eq!((all.queue.qps, own.queue.qps), (1.5, 1.5));
    assert_eq!(own.queue.base_delay, Duration::from_millis(10));
    assert_eq!(own.reconcile.resync_period, Some(Duration::from_secs(600)));
    assert_eq!(own.cache.label_selector.as_deref(), Some("app in (a,b)"));
    assert!(!all.cache.streaming_lists);
    assert_eq!(config.controllers().collect::<Vec<_>>(), ["web-app"]);
}

#[test]
fn every_error_names_its_key_and_its_source() {
    check_error(Sources::new().file("worker: 3"), "worker: unknown setting (from the file)");
    check_error(Sources::new().file("[1]"), "the file must hold a map of settings");
    check_error(Sources::new().flags(["workers".to_owned()]), "workers: must look like --key=value");
    let flags = ["--controllers.web.queue.burst=0".to_owned(), "--reconcile.timeout=-5s".to_owned()];
    check_error(
        Sources::new().flags(flags),
        "reconcile.timeout: must be a duration greater than zero, such as 30s or 5m (from --reconcile.timeout)\n\
         controllers.web.queue.burst: must be a whole number from 1 to 4294967295 (from --controllers.web.queue.burst)",
    );
    check_error(
        Sources::new().environment("SHOP", environment(&[("SHOP_CACHE_STREAMING_LISTS", "maybe")])),
        "cache.streamingLists: must be true or false (from SHOP_CACHE_STREAMING_LISTS)",
    );
    check_error(
        Sources::new().file("queue: {baseDelay: 1h}"),
        "queue.baseDelay: must not be longer than queue.maxDelay",
    );
    let error = Config::load(&Sources::new().file("cache: {labelSelector: 'a in'}")).unwrap_err().to_string();
    assert!(error.starts_with("cache.labelSelector: must be a label selector: "), "{error}");
    let error = Config::load(&Sources::new().file("a: [")).unwrap_err().to_string();
    assert!(error.starts_with("the file can't be read: "), "{error}");
}

#[test]
fn a_variable_that_is_almost_a_setting_is_a_mistake_and_others_are_left_alone() {
    let load = |name: &str| {
        let sources = Sources::new().environment("SHOP", environment(&[(name, "5")]));
        Config::load(&sources).map(drop).map_err(|error| error.to_string())
    };
    for (name, meant) in [
        ("SHOP_QUEUE_QSP", "QUEUE_QPS"),
        ("SHOP_WORKER", "WORKERS"),
        ("SHOP_RECONCILE_TIMOUT", "RECONCILE_TIMEOUT"),
        ("SHOP_LEADER_ELECTION_LEASEDURATION", "LEADER_ELECTION_LEASE_DURATION"),
        ("SHOP_CONTROLLERS_WEB_APP_QUEUE_MAX_RETRYS", "QUEUE_MAX_RETRIES"),
    ] {
        let said = format!("{name}: unknown setting, did you mean {meant}? (from the environment)");
        assert_eq!(load(name), Err(said));
    }
    let said = "SHOP_CONTROLLERS_WEB_APP_COLOUR: unknown setting (from the environment)";
    assert_eq!(load("SHOP_CONTROLLERS_WEB_APP_COLOUR"), Err(said.to_owned()));
    // What a cluster sets in every pod for Services called `shop-controllers` and `shop-cache`, and a program for itself.
    for name in [
        "SHOP_CONTROLLERS_SERVICE_HOST",
        "SHOP_CONTROLLERS_PORT_80_TCP_ADDR",
        "SHOP_CONTROLLERS_PORT",
        "SHOP_CACHE_SERVICE_PORT",
        "SHOP_CACHE_PORT",
        "SHOP_SEED",
        "SHOP",
    ] {
        assert_eq!(load(name), Ok(()), "{name}");
    }
}

#[test]
fn settings_become_options() {
    let flags = ["--workers=8", "--reconcile.maxConcurrent=3", "--queue.maxRetries=2", "--cache.pageSize=7"];
    let config = Config::load(&Sources::new().flags(flags.map(str::to_owned))).unwrap();
    let options = config.of("web").controller_options();
    assert_eq!((options.workers, options.max_retries), (3, Some(2)));
    assert_eq!(config.of("web").informer_options::<()>().page_size, 7);
}

#[test]
fn every_key_becomes_an_option() {
    let file = "
workers: 3
queue: {maxRetries: 4, baseDelay: 1s, maxDelay: 2s, qps: 7, burst: 9}
reconcile: {timeout: 5s, resyncPeriod: 6m, maxConcurrent: 2}
cache: {labelSelector: a=b, fieldSelector: metadata.name=c, pageSize: 11, listTimeout: 12s, streamingLists: false}
";
    let config = Config::load(&Sources::new().file(file)).unwrap();
    let mut options = config.all().controller_options();
    assert_eq!((options.workers, options.max_retries), (2, Some(4)));
    assert_eq!(options.reconcile_timeout, Duration::from_secs(5));
    assert_eq!(options.resync_period, Some(Duration::from_secs(360)));
    let now = tokio::time::Instant::now();
    let (key, other) = (crate::Key::cluster("a"), crate::Key::cluster("b"));
    assert_eq!(options.queue.limiter.delay(&key, now), Duration::from_secs(1));
    assert_eq!(options.queue.limiter.delay(&key, now + Duration::from_secs(1)), Duration::from_secs(2));
    // Of nine retries at once two are gone; those beyond wait a seventh of a second each.
    let waits = (0..70).map(|_| options.queue.limiter.delay(&other, now + Duration::from_secs(1)));
    assert!(waits.last().unwrap() > Duration::from_secs(8));
    let cache = config.all().informer_options::<()>();
    assert_eq!((cache.page_size, cache.list_timeout, cache.streaming_lists), (11, Duration::from_secs(12), false));
    let target = crate::cache::Target::of::<k8s_openapi::api::core::v1::Pod>(&(), None);
    let target = config.all().target(target);
    assert_eq!(
        (target.label_selector.as_deref(), target.field_selector.as_deref()),
        (Some("a=b"), Some("metadata.name=c"))
    );
}

#[test]
fn an_election_is_set_for_the_whole_program() {
    let own = || crate::election::ElectionConfig::new("default", "shop", "pod-1");
    let file = "leaderElection: {leaseDuration: 60s, renewDeadline: 40s, releaseOnExit: false, identity: me}";
    let variables =
        environment(&[("SHOP_LEADER_ELECTION_RETRY_PERIOD", "5s"), ("SHOP_LEADER_ELECTION_NAME", "managers")]);
    let flags = ["--leaderElection.namespace=shop".to_owned()];
    let sources = Sources::new().file(file).environment("SHOP", variables).flags(flags);
    let election = Config::load(&sources).unwrap().election().election(own()).unwrap();
    let expected = crate::election::ElectionConfig {
        lease_duration: Duration::from_secs(60),
        renew_deadline: Duration::from_secs(40),
        retry_period: Duration::from_secs(5),
        release_on_exit: false,
        ..crate::election::ElectionConfig::new("shop", "managers", "me")
    };
    assert_eq!(election, expected);
    assert_eq!(Config::default().election().election(own()), Some(own()));
    let off = Config::load(&Sources::new().flags(["--leaderElection.enabled=false".to_owned()])).unwrap();
    assert_eq!(off.election().election(own()), None);
    check_error(
        Sources::new().file("leaderElection: {renewDeadline: 20s}"),
        "leaderElection.leaseDuration: must be greater than renewDeadline",
    );
    check_error(
        Sources::new().flags(["--leaderElection.retryPeriod=soon".to_owned()]),
        "leaderElection.retryPeriod: must be a duration greater than zero, such as 30s or 5m (from --leaderElection.retryPeriod)",
    );
    check_error(
        Sources::new().file("controllers: {web: {leaderElection: {enabled: false}}}"),
        "controllers.web.leaderElection.enabled: is for the whole program, not for one controller (from the file)",
    );
}

#[test]
fn clients_are_set_for_the_whole_program() {
    let usual = crate::throttle::ClientOptions::default();
    assert_eq!(Config::default().client(), &usual);
    let sources = Sources::new().file("client: {qps: 20, retries: 0}").set(["client.burst=5".to_owned()]);
    let expected = crate::throttle::ClientOptions { qps: Some(20.0), burst: 5, retries: 0 };
    assert_eq!(Config::load(&sources).unwrap().client(), &expected);
    let unset = Sources::new().file("client: {qps: 20}").set(["client.qps=".to_owned()]);
    assert_eq!(Config::load(&unset).unwrap().client(), &usual, "an empty value means none");
    check_error(Sources::new().file("client: {qps: 0}"), "client.qps: must be greater than zero (from the file)");
    check_error(
        Sources::new().file("controllers: {web: {client: {qps: 1}}}"),
        "controllers.web.client.qps: is for the whole program, not for one controller (from the file)",
    );
}

#[test]
fn settings_behind_one_flag_count_like_flags() {
    let sources = Sources::new()
        .file("workers: 2\nqueue: {qps: 1}")
        .environment("SHOP", environment(&[("SHOP_WORKERS", "3")]))
        .set(["workers=4", "controllers.web.workers=5", "workers=6"].map(str::to_owned));
    let config = Config::load(&sources).unwrap();
    assert_eq!((config.of("web").workers, config.of("other").workers), (5, 6), "of two the last one counts");
    check_error(
        Sources::new().set(["workers", "colour=red", "controllers.web.queue.burst=many"].map(str::to_owned)),
        "workers: must look like key=value (from --set)\n\
         colour: unknown setting (from --set)\n\
         controllers.web.queue.burst: must be a whole number from 1 to 4294967295 (from --set)",
    );
}

#[test]
fn every_key_is_documented_with_its_variable() {
    let page = include_str!("../../../../docs/configuration.md");
    for key in sources::keys() {
        let row = format!("| `{key}` | `{}` |", sources::variable_of(key));
        assert!(page.contains(&row), "docs/configuration.md has no row {row}");
    }
}

#[test]
fn what_is_for_a_part_of_the_program_is_left_to_it() {
    let file = "workers: 2\nscheduler: {profiles: [a]}\n";
    let config = Config::load(&Sources::new().part("scheduler").file(file)).unwrap();
    assert_eq!((config.all().workers, config.part("other")), (2, None));
    assert_eq!(config.part("scheduler"), Some(&serde_json::json!({"profiles": ["a"]})));
    let error = Config::load(&Sources::new().file(file)).unwrap_err();
    assert!(error.to_string().starts_with("scheduler.profiles: unknown setting"), "{error}");
}
