//! The thermostat, with every fault at every point.

mod scenario;

use scenario::ColderAfterAll;
use setpoint_testkit::exhaust;

#[test]
fn every_fault_leads_to_the_same_room() {
    let report = exhaust(&ColderAfterAll);
    report.assert();
    assert!(report.points > 30, "{report}");
}
