SELECT split, epoch FROM revenant.claim_splits('claim', 'bench') \gset
SELECT revenant.release_split('claim', :split, :epoch);
