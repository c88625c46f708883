//! `setpoint top`: queues, rates and slow objects of the controllers, live on a terminal or once into a pipe.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use crate::connection::ConnectionArguments;
use crate::failure::{Failure, print};
use crate::figures::Figures;
use crate::output::FormArguments;
use crate::request::{Server, Trouble};
use crate::tab::Tabs;
use crate::terminal::{escape, with_progress};
use crate::{span, timeline};

/// Slow runs that are shown.
const SLOW_MAX: usize = 5;

/// The command line.
#[derive(Args, Debug)]
pub struct TopArguments {
    /// Print once and end; what is piped is printed once in any case
    #[arg(long)]
    pub once: bool,
    /// Time between two looks, which rates are counted over
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = span::parse)]
    pub interval: Duration,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub form: FormArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub connection: ConnectionArguments,
}

/// What was seen at one moment.
struct Look {
    at: Instant,
    figures: Figures,
    traces: Value,
}

/// Runs it.
pub async fn run(arguments: &TopArguments) -> Result<(), Failure> {
    let server = arguments.connection.connect().await?;
    let once = arguments.once || arguments.form.form.is_some() || !std::io::stdout().is_terminal();
    let mut before = look(&server).await?;
    let mut is_drawn = false;
    loop {
        with_progress("counting", tokio::time::sleep(arguments.interval.max(Duration::from_millis(100)))).await;
        let now = look(&server).await?;
        if arguments.form.print(|| value(&before, &now)) {
            return Ok(());
        }
        let drawn = draw(&before, &now);
        if once {
            print(&drawn);
            return Ok(());
        }
        if !std::mem::replace(&mut is_drawn, true) {
            print("\x1b[2J");
        }
        // Home, then each line with the rest of the old one wiped, then all that is below.
        let lines: String = drawn.lines().map(|line| format!("{line}\x1b[K\n")).collect();
        print(&format!("\x1b[H{lines}\x1b[J(Ctrl-C ends)"));
        before = now;
    }
}

async fn look(server: &Server) -> Result<Look, Trouble> {
    let (code, text) = server.text("/metrics").await?;
    if !code.is_success() {
        return Err(Trouble::Refused(serde_json::from_str(&text).unwrap_or(Value::Null)));
    }
    let traces = timeline::traces(server).await.unwrap_or(Value::Null);
    Ok(Look { at: Instant::now(), figures: Figures::parse(&text), traces })
}

/// Between two looks, in seconds.
fn span_of(before: &Look, now: &Look) -> f64 {
    now.at.duration_since(before.at).as_secs_f64().max(0.001)
}

/// The process as a whole, between two looks.
struct Totals {
    requests: f64,
    watches: f64,
    commits: f64,
    revision: f64,
    objects: f64,
    cpu: f64,
    memory: f64,
}

impl Totals {
    fn of(before: &Look, now: &Look) -> Totals {
        let seconds = span_of(before, now);
        let rate = |name: &str| (now.figures.sum(name) - before.figures.sum(name)).max(0.0) / seconds;
        Totals {
            requests: rate("apiserver_request_total"),
            watches: now.figures.sum("apiserver_longrunning_requests"),
            commits: rate("setpoint_store_commits_total"),
            revision: now.figures.sum("setpoint_store_revision"),
            objects: now.figures.sum("apiserver_storage_objects"),
            cpu: rate("process_cpu_seconds_total"),
            memory: now.figures.sum("process_resident_memory_bytes"),
        }
    }
}

/// A count, which figures tell as they tell everything.
fn whole(count: f64) -> u64 {
    count.max(0.0).round() as u64
}

/// The same for programs: rates are by the second, times in seconds, sizes in bytes.
fn value(before: &Look, now: &Look) -> Value {
    let totals = Totals::of(before, now);
    let controller = |row: &Row| {
        json!({
            "name": row.name, "queue": whole(row.depth), "runsPerSecond": row.runs, "errors": whole(row.errors),
            "retries": whole(row.retries), "meanSeconds": row.mean, "longestSeconds": row.longest,
        })
    };
    let slow = |(took, [key, controller, _, result]): (f64, [String; 4])| json!({"object": key, "controller": controller, "tookSeconds": took, "result": result});
    json!({
        "requestsPerSecond": totals.requests, "watches": whole(totals.watches), "commitsPerSecond": totals.commits,
        "revision": whole(totals.revision), "objects": whole(totals.objects), "cpu": totals.cpu,
        "memoryBytes": whole(totals.memory),
        "controllers": controllers(before, now, span_of(before, now)).iter().map(controller).collect::<Vec<_>>(),
        "slow": slow_runs(&now.traces).into_iter().map(slow).collect::<Vec<_>>(),
    })
}

fn draw(before: &Look, now: &Look) -> String {
    let Totals { requests, watches, commits, revision, objects, cpu, memory } = Totals::of(before, now);
    let (cpu, memory) = (cpu * 100.0, memory / f64::from(1 << 20));
    let mut text = format!(
        "requests {requests:.0}/s   watches {watches:.0}   commits {commits:.0}/s   revision {revision:.0}   objects {objects:.0}   cpu {cpu:.0}%   memory {memory:.0} MiB\n\n",
    );
    let controllers = controllers(before, now, span_of(before, now));
    if controllers.is_empty() {
        text.push_str("no controllers in this process: `setpoint up` runs them beside the server\n");
        return text;
    }
    let mut tabs = Tabs::default();
    tabs.row(["CONTROLLER", "QUEUE", "RUNS/S", "ERRORS", "RETRIES", "MEAN", "LONGEST"]);
    for row in &controllers {
        tabs.row(row.cells());
    }
    text.push_str(&tabs.flush());
    let slow = slow_runs(&now.traces);
    if !slow.is_empty() {
        tabs.reset();
        text.push('\n');
        tabs.row(["SLOW OBJECT", "CONTROLLER", "TOOK", "RESULT"]);
        slow.into_iter().for_each(|(_, row)| tabs.row(row));
        text.push_str(&tabs.flush());
    }
    text
}

/// One controller between two looks.
struct Row {
    name: String,
    depth: f64,
    runs: f64,
    errors: f64,
    retries: f64,
    mean: Option<f64>,
    longest: f64,
}

impl Row {
    fn cells(&self) -> [String; 7] {
        [
            self.name.clone(),
            format!("{:.0}", self.depth),
            format!("{:.1}", self.runs),
            format!("{:.0}", self.errors),
            format!("{:.0}", self.retries),
            self.mean.map_or_else(|| "-".to_owned(), duration),
            if self.longest > 0.0 { duration(self.longest) } else { "-".to_owned() },
        ]
    }
}

/// Every controller that has ever run, the busiest first.
fn controllers(before: &Look, now: &Look, seconds: f64) -> Vec<Row> {
    let by = |look: &Look, name: &str| look.figures.by(name, "controller");
    let total = |look: &Look| by(look, "controller_runtime_reconcile_total");
    let (runs, earlier) = (total(now), total(before));
    let depth = by(now, "workqueue_depth");
    let errors = by(now, "controller_runtime_reconcile_errors_total");
    let retries = by(now, "workqueue_retries_total");
    let longest = by(now, "workqueue_longest_running_processor_seconds");
    let (sums, counts) = (
        by(now, "controller_runtime_reconcile_time_seconds_sum"),
        by(now, "controller_runtime_reconcile_time_seconds_count"),
    );
    let of = |map: &std::collections::BTreeMap<String, f64>, name: &str| map.get(name).copied().unwrap_or(0.0);
    let row = |(name, total): (&String, &f64)| Row {
        name: name.clone(),
        depth: of(&depth, name),
        runs: (total - of(&earlier, name)).max(0.0) / seconds,
        errors: of(&errors, name),
        retries: of(&retries, name),
        mean: Some(of(&counts, name)).filter(|count| *count > 0.0).map(|count| of(&sums, name) / count),
        longest: of(&longest, name),
    };
    let mut rows: Vec<Row> = runs.iter().filter(|(_, total)| **total > 0.0).map(row).collect();
    rows.sort_by(|a, b| (b.depth, b.runs).partial_cmp(&(a.depth, a.runs)).unwrap_or(std::cmp::Ordering::Equal));
    rows
}

/// The runs that took longest among those that are kept.
fn slow_runs(traces: &Value) -> Vec<(f64, [String; 4])> {
    let mut runs: Vec<(f64, [String; 4])> = Vec::new();
    for (controller, list) in traces.as_object().into_iter().flatten() {
        for run in list.as_array().into_iter().flatten() {
            let took = run["tookSeconds"].as_f64().unwrap_or(0.0);
            let text = |value: &Value| escape(value.as_str().unwrap_or_default());
            let cells = [text(&run["key"]), controller.clone(), duration(took), text(&run["outcome"]["result"])];
            runs.push((took, cells));
        }
    }
    runs.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap_or(std::cmp::Ordering::Equal));
    runs.truncate(SLOW_MAX);
    runs
}

fn duration(seconds: f64) -> String {
    match seconds {
        ..0.001 => format!("{:.0} µs", seconds * 1e6),
        ..1.0 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_controllers_come_first_with_their_rates() {
        let look = |runs: u32, at: Instant| Look {
            at,
            figures: Figures::parse(&format!(
                "controller_runtime_reconcile_total{{controller=\"a\",result=\"success\"}} {runs}\n\
                 controller_runtime_reconcile_total{{controller=\"b\",result=\"success\"}} 4\n\
                 workqueue_depth{{controller=\"a\",priority=\"low\"}} 2\n\
                 controller_runtime_reconcile_time_seconds_sum{{controller=\"a\"}} 0.02\n\
                 controller_runtime_reconcile_time_seconds_count{{controller=\"a\"}} 10\n"
            )),
            traces: json!({"a": [{"key": "x/y", "tookSeconds": 1.5, "outcome": {"result": "done"}}]}),
        };
        let begin = Instant::now();
        let drawn = draw(&look(10, begin), &look(30, begin + Duration::from_secs(2)));
        let expected = "\
CONTROLLER   QUEUE   RUNS/S   ERRORS   RETRIES   MEAN     LONGEST
a            2       10.0     0        0         2.0 ms   -
b            0       0.0      0        0         -        -

SLOW OBJECT   CONTROLLER   TOOK    RESULT
x/y           a            1.5 s   done
";
        assert!(drawn.ends_with(expected), "{drawn}");
        let told = value(&look(10, begin), &look(30, begin + Duration::from_secs(2)));
        let first = json!({
            "name": "a", "queue": 2, "runsPerSecond": 10.0, "errors": 0, "retries": 0, "meanSeconds": 0.002,
            "longestSeconds": 0.0,
        });
        assert_eq!((&told["controllers"][0], &told["controllers"][1]["meanSeconds"]), (&first, &Value::Null));
        assert_eq!(told["slow"], json!([{"object": "x/y", "controller": "a", "tookSeconds": 1.5, "result": "done"}]));
    }
}
