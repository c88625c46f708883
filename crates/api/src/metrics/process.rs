//! What a process uses, from what Linux tells of it. Reading that is up to the program: elsewhere there is nothing to read.

use super::Exposition;

/// Clock ticks in a second: fixed at 100 in what Linux tells programs, whatever the kernel runs with.
const TICKS_PER_SECOND: f64 = 100.0;

/// The texts that Linux has; an empty one tells nothing.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// `/proc/self/stat`
    pub stat: String,
    /// `/proc/self/status`
    pub status: String,
    /// `/proc/self/limits`
    pub limits: String,
    /// `/proc/stat`
    pub system: String,
    /// How many entries `/proc/self/fd` has.
    pub open_files: Option<usize>,
}

impl Process {
    /// Writes what can be known.
    pub fn write(&self, out: &mut Exposition) {
        let Process { stat, status, limits, system, open_files } = self;
        let gauge = "gauge";
        let figures = [
            ("process_cpu_seconds_total", "counter", "Processor time used.", cpu_seconds(stat)),
            ("process_resident_memory_bytes", gauge, "Memory in use.", kilobytes(status, "VmRSS:")),
            ("process_virtual_memory_bytes", gauge, "Memory addressed.", kilobytes(status, "VmSize:")),
            ("process_start_time_seconds", gauge, "When it began, since 1970.", start_time(stat, system)),
            ("process_open_fds", gauge, "Open files and sockets.", open_files.map(|count| count as f64)),
            ("process_max_fds", gauge, "Most open files and sockets allowed.", files_max(limits)),
            ("process_threads", gauge, "Threads.", number_after(status, "Threads:")),
        ];
        for (name, kind, help, value) in figures {
            if let Some(value) = value {
                out.family(name, kind, help);
                out.sample("", &[], value);
            }
        }
    }
}

/// Field `at` of the line, counted as in proc(5). The name may have spaces, so fields are counted from behind it.
fn stat_field(stat: &str, at: usize) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(at - 3)?.parse().ok()
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    Some((stat_field(stat, 14)? + stat_field(stat, 15)?) / TICKS_PER_SECOND)
}

fn start_time(stat: &str, system: &str) -> Option<f64> {
    Some(number_after(system, "btime ")? + stat_field(stat, 22)? / TICKS_PER_SECOND)
}

fn kilobytes(status: &str, name: &str) -> Option<f64> {
    Some(number_after(status, name)? * 1024.0)
}

fn files_max(limits: &str) -> Option<f64> {
    number_after(limits, "Max open files")
}

fn number_after(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_what_linux_writes() {
        let stat = "42 (a b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 4 0 2500 1000 9";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(start_time(stat, "cpu 1\nbtime 1000\n"), Some(1025.0));
        assert_eq!(kilobytes("VmSize:\t 9 kB\nVmRSS:\t    12 kB\n", "VmRSS:"), Some(12288.0));
        assert_eq!(
            files_max("Max open files            1024                 4096                 files\n"),
            Some(1024.0)
        );
        assert_eq!(cpu_seconds(""), None);
    }
}
