//! Where heavy computing happens, and where its panics end.
//!
//! Pure work runs in a lane: on a thread of its own, so that it holds up nothing else, and so that the runtime does not
//! wait for it when it stops. A panic in a lane becomes a value. A panic anywhere else ends the process at once
//! ([`abort_on_other_panics`]): a task never dies silently.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use karpenter_model::plan::Plan;
use karpenter_model::problem::Problem;
use karpenter_scheduling::validate::Violation;
use karpenter_scheduling::validated::{Planner, PlannerPanic};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

/// What computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    Provisioning,
    Disruption,
}

impl Lane {
    fn thread_name(self) -> &'static str {
        match self {
            Self::Provisioning => "solver-provisioning",
            Self::Disruption => "solver-disruption",
        }
    }
}

thread_local! {
    /// Whether the thread is inside of [`catch`].
    static IS_CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Calls of [`catch`] that have not returned.
static CATCHING: AtomicUsize = AtomicUsize::new(0);

/// Where the last contained panic happened: perhaps on another thread than the one that catches it.
static LAST_LOCATION: Mutex<Option<String>> = Mutex::new(None);

/// Installs the panic hook of the process. To be called first of all.
pub fn abort_on_other_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if is_contained() {
            note_location(info);
        } else {
            report(info);
            std::process::abort();
        }
    }));
}

/// Threads of rayon's pool work for the solver only, and pass their panics to the thread that they work for.
fn is_contained() -> bool {
    let is_work_caught = || CATCHING.load(Ordering::Relaxed) > 0;
    IS_CATCHING.get() || (rayon::current_thread_index().is_some() && is_work_caught())
}

fn note_location(info: &PanicHookInfo<'_>) {
    let location = info.location().map(|at| format!("{}:{}", at.file(), at.line()));
    *LAST_LOCATION.lock().unwrap_or_else(PoisonError::into_inner) = location;
}

/// The result of pure work, or the panic that ended it.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, PlannerPanic> {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_CATCHING.set(self.0);
            CATCHING.fetch_sub(1, Ordering::Relaxed);
        }
    }
    CATCHING.fetch_add(1, Ordering::Relaxed);
    let _restore = Restore(IS_CATCHING.replace(true));
    // The work is pure: what it leaves behind half done is dropped with it.
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let message = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        let location = LAST_LOCATION.lock().unwrap_or_else(PoisonError::into_inner).take();
        PlannerPanic { message, location: location.unwrap_or_else(|| "an unknown place".to_owned()) }
    })
}

/// Runs work off the event loop, except on a runtime that has only one thread: there it runs in place, so that a simulated
/// run is the same every time.
pub async fn run<T: Send + 'static>(
    lane: Lane,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, PlannerPanic> {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return catch(work);
    }
    let (answer, answered) = oneshot::channel();
    let thread = std::thread::Builder::new().name(lane.thread_name().to_owned());
    let spawned = thread.spawn(move || {
        // The caller may have been dropped meanwhile.
        let _ = answer.send(catch(work));
    });
    let no_answer = |message: String| Err(PlannerPanic { message, location: "starting a thread".to_owned() });
    match spawned {
        Ok(_) => answered.await.unwrap_or_else(|error| no_answer(error.to_string())),
        Err(error) => no_answer(error.to_string()),
    }
}

/// An engine each of whose attempts ends in a value.
pub struct CatchPanics<'a>(pub &'a dyn Planner);

impl Planner for CatchPanics<'_> {
    fn plan(&self, problem: &Problem) -> Result<Plan, PlannerPanic> {
        catch(|| self.0.plan(problem))?
    }

    fn validate(&self, problem: &Problem, plan: &Plan) -> Result<Vec<Violation>, PlannerPanic> {
        catch(|| self.0.validate(problem, plan))?
    }
}
