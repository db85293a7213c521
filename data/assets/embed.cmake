# The data sets that are built into the library.
include(TernEmbed)
tern_embed(tern_data data/assets/amazon_cells_labelled.txt amazon_cells_labelled)
tern_embed(tern_data data/assets/imdb_labelled.txt imdb_labelled)
tern_embed(tern_data data/assets/yelp_labelled.txt yelp_labelled)
tern_embed(tern_data data/assets/digits.csv.gz digits_csv_gz)
# BERT's vocabulary.
tern_embed(tern_data data/assets/bert-base-uncased-vocab.txt bert_base_uncased_vocab)
