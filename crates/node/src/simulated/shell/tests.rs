use super::*;

fn environment(variables: &[(&str, &str)]) -> Environment {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned())));
    Environment {
        variables: variables.collect(),
        volumes: vec!["/data".to_owned()],
        scratch: vec!["/tmp".to_owned()],
        seed: 1,
        until: None,
    }
}

/// When and how each of so many runs in a row ends.
fn check(script: &str, variables: &[(&str, &str)], expected: &[Option<(u64, i32)>]) {
    let (environment, mut files) = (environment(variables), Files::new());
    let runs = expected.iter().map(|_| run(script, false, &environment, &mut files).end);
    let found: Vec<_> = runs.map(|end| end.map(|end| (end.after.as_secs(), end.code))).collect();
    assert_eq!(found, expected, "{script}");
}

#[test]
fn a_file_of_a_volume_is_there_at_the_next_run() {
    let once = "if [[ -r /data/foo-$I ]]\nthen\n exit 0\nelse\n touch /data/foo-$I\n exit 42\nfi";
    check(once, &[("I", "3")], &[Some((0, 42)), Some((0, 0)), Some((0, 0))]);
    let other = "if [ -f /tmp/a ]; then exit 0; fi; touch /tmp/a; exit 1";
    check(other, &[], &[Some((0, 1)), Some((0, 1))]);
    let two = "if [ -f /data/b ]; then sleep 9; elif [ -f /data/a ]; then touch /data/b; exit 2; else touch /data/a; exit 1; fi";
    check(two, &[], &[Some((0, 1)), Some((0, 2)), Some((9, 0))]);
}

#[test]
fn variables_decide() {
    let odd = "if [ $(expr ${I} % 2) -ne 0 ]; then\n exit 1\nelse\n exit 0\nfi\n";
    check(odd, &[("I", "1")], &[Some((0, 1))]);
    check(odd, &[("I", "2")], &[Some((0, 0))]);
    check(odd, &[], &[None]);
    check("exit $(( $I * 2 + 1 ))", &[("I", "3")], &[Some((0, 7))]);
    check("[ \"$A\" == \"b c\" ] && exit 4 || exit 5", &[("A", "b c")], &[Some((0, 4))]);
    check("[[ -n ${A:-x} ]] && sleep 3", &[("A", "")], &[Some((3, 0))]);
    check("CODE=6; exit $CODE", &[], &[Some((0, 6))]);
    check("exit ${UNKNOWN}", &[], &[None]);
}

#[test]
fn chance_is_drawn_from_the_seed() {
    let ends = |seed| {
        let environment = Environment { seed, ..Environment::default() };
        run("exit $(( $RANDOM / 16384 ))", false, &environment, &mut Files::new()).end.map(|end| end.code)
    };
    let drawn: Vec<_> = (0..64).map(ends).collect();
    assert!(drawn.contains(&Some(0)) && drawn.contains(&Some(1)), "{drawn:?}");
    assert_eq!(drawn, (0..64).map(ends).collect::<Vec<_>>());
}

#[test]
fn loops_end_or_run_on() {
    check("for i in 1 2 3; do sleep $i; done", &[], &[Some((6, 0))]);
    check("for i in $(seq 3); do sleep $i; done", &[], &[Some((6, 0))]);
    check("for i in $(seq 6 -2 $A) $(seq 2 1); do sleep $i; done", &[("A", "1")], &[Some((12, 0))]);
    for beyond in ["$(seq 1 100000000000)", "$(seq 1.5 3)", "$(seq 1 0 3)", "$(seq)"] {
        check(&format!("for i in {beyond}; do sleep $i; done"), &[], &[None]);
    }
    check("while true; do sleep 1; done", &[], &[None]);
    check("until [ -f /data/a ]; do sleep 1; touch /data/a; done; exit 3", &[], &[Some((1, 3))]);
    check("while :; do :; done", &[], &[None]);
}

#[test]
fn failures_end_a_strict_script_unless_they_are_asked_for() {
    check("set -e\nfalse\nexit 0", &[], &[Some((0, 1))]);
    check("set -e; false || true; ! false || exit 7; exit 8", &[], &[Some((0, 8))]);
    check("false\nexit 0", &[], &[Some((0, 0))]);
}

#[test]
fn what_is_not_known_runs_on() {
    for script in [
        "./server",
        "[ -f /etc/passwd ]",
        "a | b",
        "sleep 1 &",
        "case x in y) ;; esac",
        "cat /etc/hosts",
        "f() { :; }",
        "if true",
    ] {
        check(script, &[], &[None]);
    }
    check("echo 'a; b' # exit 3\nexit 2 # why", &[], &[Some((0, 2))]);
    check(&"{ ".repeat(1_000), &[], &[None]);
}

#[test]
fn what_is_printed_is_known_or_left_out() {
    let check = |script: &str, expected: &[&str]| {
        let environment = environment(&[("NAME", "ann"), ("HOSTNAME", "p-0")]);
        let said = run(script, false, &environment, &mut Files::new()).said;
        let said: Vec<&str> = said.iter().map(|(_, line)| &**line).collect();
        assert_eq!(said, expected, "{script}");
    };
    check("echo hello $NAME; echo \"$(hostname)\" > /tmp/h; cat /tmp/h", &["hello ann", "p-0"]);
    check("env", &["HOSTNAME=p-0", "NAME=ann"]);
    check("echo out; echo err >&2; echo $UNKNOWN; echo a >/dev/null; echo b", &["out", "err", "b"]);
    check("echo one > /data/f; echo two >> /data/f; cat /data/f", &["one", "two"]);
    check("echo $(date) > /tmp/d; cat /tmp/d; echo end", &["end"]);
}
