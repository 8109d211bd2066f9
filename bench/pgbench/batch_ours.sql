SELECT '[' || string_agg('{"split":"' || split || '","epoch":' || epoch || ',"done": true}', ',') || ']' AS commits FROM revenant.claim_splits('pull', 'bench', 100) \gset
SELECT revenant.commit_splits('pull', :commits);
