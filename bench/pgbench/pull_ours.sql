SELECT split, epoch FROM revenant.claim_splits('pull', 'bench') \gset
SELECT revenant.commit_split('pull', :split, :epoch, done => true);
