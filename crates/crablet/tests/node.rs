//! The agent on a real containerd, seen from outside: its reports, its HTTP answers, and what the runtime has.
//!
//! Every scenario runs on both containerds: Debian's 1.6, which has no event stream, and 2.3.7, which has one.

mod node {
    pub mod bad_input;
    pub mod check;
    pub mod crowd;
    pub mod life;
    pub mod reload;
    pub mod restarts;
    pub mod run_once;
    pub mod statics;
    pub mod support;
    pub mod surface;
}

/// One test per containerd and scenario.
macro_rules! scenarios {
    ($($room:ident :: $scenario:ident),+ $(,)?) => {
        mod debian { $(
            #[test]
            fn $scenario() {
                crate::node::support::on(crablet_testbed::Flavor::Debian, crate::node::$room::$scenario);
            }
        )+ }
        mod pinned { $(
            #[test]
            fn $scenario() {
                crate::node::support::on(crablet_testbed::Flavor::Pinned, crate::node::$room::$scenario);
            }
        )+ }
    };
}

scenarios! {
    crowd::sixty_pods_come_and_go_and_leave_nothing,
    crowd::a_hundred_kills_change_nothing_of_that,
    life::restart_policies_decide_how_a_pod_ends,
    life::a_container_that_keeps_failing_backs_off,
    life::an_edited_manifest_replaces_the_pod,
    life::a_container_is_given_its_grace,
    life::last_words_are_reported,
    life::a_stop_signal_is_the_pods_choice,
    restarts::killing_the_agent_changes_no_status_and_no_container,
    restarts::a_runtime_that_comes_back_is_found_again,
    restarts::the_agent_waits_for_a_runtime_that_is_not_there_yet,
    restarts::what_was_removed_while_the_agent_was_down_ends,
    statics::an_edited_manifest_waits_for_the_end_of_its_last_version,
    statics::a_manifest_that_comes_back_waits_for_the_end_of_its_pod,
    reload::a_changed_configuration_touches_no_pod,
    reload::resolver_settings_are_those_of_the_moment,
    run_once::run_once_starts_the_pods_reports_and_leaves,
    bad_input::bad_manifests_are_named_and_harm_nobody,
    bad_input::an_image_that_cannot_be_had_is_reported_and_tried_again,
    check::a_fit_machine_is_found_fit,
    surface::submitted_manifests_survive_the_agent,
    surface::pods_logs_and_health_look_as_upstreams,
    surface::decisions_can_be_asked_for,
    surface::a_pull_shows_how_far_it_is,
}
