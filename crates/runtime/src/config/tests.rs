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
fn settings_become_options() {
    let flags = ["--workers=8", "--reconcile.maxConcurrent=3", "--queue.maxRetries=2", "--cache.pageSize=7"];
    let config = Config::load(&Sources::new().flags(flags.map(str::to_owned))).unwrap();
    let options = config.of("web").controller_options();
    assert_eq!((options.workers, options.max_retries), (3, Some(2)));
    assert_eq!(config.of("web").informer_options::<()>().page_size, 7);
}
