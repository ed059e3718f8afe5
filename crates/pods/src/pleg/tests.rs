//! A runtime that says it is well.

use crablet_cri::fake::{Call, CallFault, FakeRuntime, FaultKind, RuntimeSettings};
use jiff::Timestamp;

use super::*;

const LONG: Duration = Duration::from_secs(300);

#[tokio::test(start_paused = true)]
async fn a_runtime_that_answers_without_listing_its_pods_is_not_well() {
    let random = fastrand::Rng::with_seed(7);
    let runtime = FakeRuntime::new(RuntimeSettings::default(), random, Arc::new(|| Timestamp::UNIX_EPOCH));
    let view = Arc::new(View::default());
    let health = watch::Sender::<RuntimeHealth>::default();
    let mut told = health.subscribe();
    let (hints, mut heard) = mpsc::channel(8);
    tokio::spawn(async move { while heard.recv().await.is_some() {} });
    let pleg = Pleg {
        runtime: Arc::new(runtime.clone()),
        endpoint: "fake".to_owned(),
        hints,
        relist_now: Arc::default(),
        node: watch::Sender::default(),
        view: view.clone(),
        health,
        status_pace: Duration::from_secs(10),
    };
    tokio::spawn(pleg.run());
    let is_ready = || view.summary().runtime.ready;
    sleep(Duration::from_secs(1)).await;
    let first = told.borrow().clone();
    assert!(first.listed.is_some() && !first.unlisted && first.lost.is_none() && is_ready(), "{first:?}");

    let broken = FaultKind::ErrBefore("the store is broken".to_owned());
    for fault in [FaultKind::Hang { effect: false }, broken] {
        runtime.add_fault(CallFault::on(Call::ListContainers, fault));
        drop(told.wait_for(|health| health.unlisted).await.expect("a sender"));
        let until = Instant::now() + LONG;
        while Instant::now() < until {
            let now = told.borrow().clone();
            assert!(now.unlisted && now.lost.is_none() && now.status.is_some() && !is_ready(), "{now:?}");
            sleep(Duration::from_millis(70)).await;
        }
        assert!(told.borrow().listed.is_some_and(|last| last.elapsed() >= LONG));
        runtime.clear_faults();
        drop(told.wait_for(|health| !health.unlisted).await.expect("a sender"));
        assert!(is_ready() && told.borrow().listed.is_some_and(|last| last.elapsed() < SAFETY_RELIST));
    }
}
