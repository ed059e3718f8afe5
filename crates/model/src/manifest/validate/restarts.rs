//! When a container is started again after its end.

use super::super::error::Problems;
use super::one_of;
use crate::api::Container;

const MAX_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;

pub(super) fn check(path: &str, container: &Container, problems: &mut Problems) {
    let rules = container.restart_policy_rules.as_deref().unwrap_or_default();
    let policies = ["Always", "Never", "OnFailure"];
    one_of(format!("{path}.restartPolicy"), container.restart_policy.as_deref(), &policies, problems);
    if container.restart_policy.is_none() && !rules.is_empty() {
        problems
            .add(format!("{path}.restartPolicy"), "must specify restartPolicy when restart rules are used");
    }
    if rules.len() > MAX_RULES {
        let message = format!("{} rules; the limit is {MAX_RULES}", rules.len());
        problems.add(format!("{path}.restartPolicyRules"), message);
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = format!("{path}.restartPolicyRules[{index}]");
        one_of(format!("{path}.action"), Some(&rule.action), &["Restart", "RestartAllContainers"], problems);
        let Some(codes) = &rule.exit_codes else {
            problems.add(format!("{path}.exitCodes"), "required");
            continue;
        };
        let path = format!("{path}.exitCodes");
        one_of(format!("{path}.operator"), Some(&codes.operator), &["In", "NotIn"], problems);
        let values = codes.values.as_ref().map_or(0, Vec::len);
        if values > MAX_EXIT_CODES {
            problems.add(format!("{path}.values"), format!("{values} values; the limit is {MAX_EXIT_CODES}"));
        }
    }
}
