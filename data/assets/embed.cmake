# The data sets and the vocabulary that are built into the library.
include(TernEmbed)

function(tern_embed_assets target)
  tern_embed(${target} data/assets/amazon_cells_labelled.txt amazon_cells_labelled)
  tern_embed(${target} data/assets/imdb_labelled.txt imdb_labelled)
  tern_embed(${target} data/assets/yelp_labelled.txt yelp_labelled)
  tern_embed(${target} data/assets/digits.csv.gz digits_csv_gz)
  tern_embed(${target} data/assets/bert-base-uncased-vocab.txt bert_base_uncased_vocab)
endfunction()
