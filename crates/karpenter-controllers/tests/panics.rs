//! Tests the panic hook of the process: panics in pure work and in the solver's thread pool are caught, and any other
//! panic aborts the process. Each case runs this test program as a child process.

use std::process::{Command, Output};

use karpenter_controllers::compute::{Lane, abort_on_other_panics, catch, run};

const CASE: &str = "KARPENTER_PANIC_CASE";

/// Runs one case in a child process.
fn child(case: &str) -> Output {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args(["--exact", "case", "--ignored", "--nocapture", "--test-threads=1"]).env(CASE, case);
    command.output().expect("a child process")
}

/// A case that the child process runs. It is only a test when the child process calls it.
#[test]
#[ignore = "run by the other tests in a child process"]
fn case() {
    let Ok(case) = std::env::var(CASE) else { return };
    // The hook of the test harness runs after this one.
    abort_on_other_panics();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    match case.as_str() {
        "lane" => {
            let fault = runtime.block_on(run(Lane::Provisioning, || -> u32 { panic!("planted {}", 1) }));
            let fault = fault.expect_err("it panicked");
            assert_eq!(fault.message, "planted 1");
            assert!(fault.location.contains("panics.rs:"), "{fault}");
            assert_eq!(runtime.block_on(run(Lane::Disruption, || 7)), Ok(7));
        }
        "pool" => {
            let work = || rayon::join(|| 1, || -> u32 { panic!("planted") });
            let fault = runtime.block_on(run(Lane::Disruption, work)).expect_err("it panicked");
            assert_eq!(fault.message, "planted");
        }
        "in place" => {
            let fault = catch(|| -> u32 { panic!("planted") }).expect_err("it panicked");
            assert_eq!(fault.message, "planted");
        }
        "pool outside" => {
            let _ = catch(|| 1);
            rayon::join(|| 1, || -> u32 { panic!("outside of a lane") });
            println!("still here");
        }
        "outside" => {
            let _ = catch(|| -> u32 { panic!("planted") });
            let task = runtime.spawn(async { panic!("outside of a lane") });
            let _ = runtime.block_on(task);
            println!("still here");
        }
        other => unreachable!("{other}"),
    }
    println!("alive");
}

#[test]
fn panic_in_a_lane_becomes_an_error() {
    for case in ["lane", "pool", "in place"] {
        let output = child(case);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("alive"), "{case}: {output:?}");
    }
}

#[cfg(unix)]
#[test]
fn panic_outside_of_a_lane_aborts_the_process() {
    use std::os::unix::process::ExitStatusExt;
    const SIGABRT: i32 = 6;
    for case in ["outside", "pool outside"] {
        let output = child(case);
        assert_eq!(output.status.signal(), Some(SIGABRT), "{case}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("outside of a lane"), "{case}: {output:?}");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("still here"), "{case}");
    }
}
